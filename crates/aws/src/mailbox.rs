//! The mailbox in DynamoDB: one item per direction, written attribute by attribute.
//!
//! | item | attributes |
//! |---|---|
//! | `in#<key>` | `order_gen`, `order_step` (its rank), `assigned`, `order_doc`, `credential_doc` |
//! | `out#<key>` | `beat_boot`, `beat_seq`, `beat_doc`; for each kind `gen_<kind>`, `signal_<kind>` |
//!
//! Each write is one conditional `UpdateItem`. Not here: the rules of `Inbox` and `Beat`.

use std::sync::Arc;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValue, TransactWriteItem, Update};
use bullpen_core::ids::{Generation, MailboxKey};
use bullpen_core::limits::{Limits, MAILBOX_BYTES_MAX};
use bullpen_core::mailbox::{
    Assignment, Beat, Inbox, Order, RawReport, Report, ReportRead, Signal, SignalKind,
    UnreadableReport,
};
use bullpen_core::ports::{Clock, Consistency, Fault, ItemKind, Mailbox, Written};

use crate::batch::{self, TransactionPart};
use crate::fault::{Verdict, judge};
use crate::names::StackName;
use crate::table::{Item, Key, Stored, Table, json, n, s, seconds};
use crate::transaction::BUILT;

/// The mailboxes of one stack.
///
/// An agent calls only `GetItem` on its inbox and `UpdateItem` on its report. The credential is an
/// attribute of its own, so that `redact` removes it without a read. `post_all` sends assignments
/// in transactions (`batch`) but each withdrawal alone: the inbox it leaves depends on the
/// stored assignment, and a transaction returns nothing. Nothing wakes a waiting agent: `wait`
/// sleeps.
pub struct DynamoMailbox<C> {
    table: Table,
    clock: Arc<C>,
}

impl<C: Clock> DynamoMailbox<C> {
    /// The mailboxes of this stack. It uses the clock to wait and to set `forget_at`.
    pub fn new(config: &SdkConfig, stack: &StackName, clock: Arc<C>) -> Self {
        Self { table: Table::new(config, stack.mailbox_table()), clock }
    }

    /// A change that also restarts the item's time to live. It leaves an item of a newer version
    /// unchanged.
    fn change(&self, (kind, key): (ItemKind, &Key), set: &str, condition: &str) -> Change {
        let keep_until = self.clock.now().after(Limits::DEFAULT.mailbox_ttl);
        let change = Change {
            key: key.attributes(),
            expression: format!("SET v = :v, forget_at = :forget{set}"),
            condition: format!("(attribute_not_exists(v) OR v <= :v) AND ({condition})"),
            values: Item::new(),
        };
        change.with(":v", n(kind.version())).with(":forget", seconds(keep_until))
    }

    /// Stores an order if it is newer than the stored one.
    fn posting(&self, key: &MailboxKey, order: &Order) -> Change {
        const NEWER: &str = "attribute_not_exists(order_gen) OR order_gen < :gen \
             OR (order_gen = :gen AND order_step < :step)";
        let (rank, (credential, bare)) = (order.rank(), without_credential(order));
        let assigned = match order {
            Order::Assigned(_) => ":gen",
            Order::Withdrawn(_) => "if_not_exists(assigned, :none)",
        };
        let set = format!(
            ", order_gen = :gen, order_step = :step, order_doc = :order, \
             assigned = {assigned} {}",
            if credential.is_some() {
                ", credential_doc = :credential"
            } else {
                "REMOVE credential_doc"
            }
        );
        let mut change = self
            .change((ItemKind::Inbox, &inbox_key(key)), &set, NEWER)
            .with(":gen", n(rank.generation))
            .with(":step", n(rank.step))
            .with(":order", json(&bare));
        if let Order::Withdrawn(_) = order {
            change = change.with(":none", n(0));
        }
        if let Some(credential) = &credential {
            change = change.with(":credential", json(credential));
        }
        change
    }

    /// An assignment as a part of a transaction; `None` for a withdrawal.
    fn assigning(&self, key: &MailboxKey, order: &Order) -> Option<TransactionPart<Inbox>> {
        let Order::Assigned(_) = order else { return None };
        // An accepted assignment replaces the whole inbox.
        let stores = Inbox::accept(None, order.clone()).ok()?;
        Some(TransactionPart { write: self.posting(key, order).part(&self.table), stores })
    }
}

/// A conditional update of one item, sent alone or as a part of a transaction.
struct Change {
    key: Item,
    expression: String,
    condition: String,
    values: Item,
}

impl Change {
    fn with(mut self, name: &str, value: AttributeValue) -> Self {
        self.values.insert(name.to_owned(), value);
        self
    }

    fn alone(self, table: &Table) -> UpdateItemFluentBuilder {
        let update = table.client.update_item().table_name(&table.name).set_key(Some(self.key));
        update
            .update_expression(self.expression)
            .condition_expression(self.condition)
            .set_expression_attribute_values(Some(self.values))
    }

    fn part(self, table: &Table) -> TransactWriteItem {
        let update = Update::builder()
            .table_name(&table.name)
            .set_key(Some(self.key))
            .update_expression(self.expression)
            .condition_expression(self.condition)
            .set_expression_attribute_values(Some(self.values))
            .build()
            .expect(BUILT);
        TransactWriteItem::builder().update(update).build()
    }
}

/// Sends an update; `None` if its condition did not hold.
async fn send(update: UpdateItemFluentBuilder) -> Result<Option<UpdateItemOutput>, Verdict> {
    match update.send().await.map_err(|error| judge(&error)) {
        Ok(done) => Ok(Some(done)),
        Err(Verdict::Lost) => Ok(None),
        Err(other) => Err(other),
    }
}

/// Sends an update and drops its data if the condition does not hold.
async fn send_or_drop(update: UpdateItemFluentBuilder) -> Result<(), Fault> {
    send(update).await.map(drop).map_err(Verdict::fault)
}

fn inbox_key(key: &MailboxKey) -> Key {
    Key { pk: format!("in#{key}"), sk: None }
}

fn report_key(key: &MailboxKey) -> Key {
    Key { pk: format!("out#{key}"), sk: None }
}

impl<C: Clock> Mailbox for DynamoMailbox<C> {
    async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let update = self.posting(key, order).alone(&self.table);
        match send(update.return_values(ReturnValue::AllNew)).await {
            Ok(Some(done)) => {
                let item = done.attributes.unwrap_or_default();
                stored_inbox(&Stored::new(ItemKind::Inbox, item)?).map(Written::Won)
            }
            Ok(None) => Ok(Written::Lost),
            Err(verdict) => verdict.written(),
        }
    }

    async fn post_all(&self, orders: &[(MailboxKey, Order)]) -> Vec<Result<Written<Inbox>, Fault>> {
        let parts = orders.iter().map(|(key, order)| self.assigning(key, order)).collect();
        let alone = |number: usize| {
            let (key, order) = &orders[number];
            self.post(key, order)
        };
        batch::write(&self.table, parts, alone).await
    }

    async fn redact(&self, key: &MailboxKey, generation: Generation) -> Result<(), Fault> {
        // The step of an assignment is 0.
        const SAME_ASSIGNMENT: &str = "order_gen = :gen AND order_step = :assignment";
        let update = self
            .change((ItemKind::Inbox, &inbox_key(key)), " REMOVE credential_doc", SAME_ASSIGNMENT)
            .with(":gen", n(generation))
            .with(":assignment", n(0));
        send_or_drop(update.alone(&self.table)).await
    }

    async fn inbox(&self, key: &MailboxKey, read: Consistency) -> Result<Option<Inbox>, Fault> {
        let found = self
            .table
            .get(ItemKind::Inbox, &inbox_key(key), read == Consistency::Consistent)
            .await?;
        found.as_ref().map(stored_inbox).transpose()
    }

    async fn reports(&self, keys: &[MailboxKey]) -> Result<Vec<ReportRead>, Fault> {
        let wanted = keys.iter().map(report_key).collect();
        let found = self.table.get_each(&wanted, true, |item| read_report(item).into()).await?;
        let report = |key| found.get(&report_key(key)).cloned().unwrap_or(ReportRead::Absent);
        Ok(keys.iter().map(report).collect())
    }

    async fn beat(&self, key: &MailboxKey, beat: &Beat) -> Result<(), Fault> {
        const FOLLOWS: &str =
            "attribute_not_exists(beat_boot) OR beat_boot <> :boot OR beat_seq < :seq";
        let set = ", beat_boot = :boot, beat_seq = :seq, beat_doc = :beat";
        let update = self
            .change((ItemKind::Report, &report_key(key)), set, FOLLOWS)
            .with(":boot", s(&beat.boot))
            .with(":seq", n(beat.seq))
            .with(":beat", json(beat));
        send_or_drop(update.alone(&self.table)).await
    }

    async fn signal(
        &self,
        key: &MailboxKey,
        kind: SignalKind,
        signal: &Signal,
    ) -> Result<(), Fault> {
        let kind = kind_name(kind);
        let not_earlier = format!("attribute_not_exists(gen_{kind}) OR gen_{kind} <= :gen");
        let set = format!(", gen_{kind} = :gen, signal_{kind} = :signal");
        let update = self
            .change((ItemKind::Report, &report_key(key)), &set, &not_earlier)
            .with(":gen", n(signal.generation))
            .with(":signal", json(signal));
        send_or_drop(update.alone(&self.table)).await
    }

    async fn wait(&self, _key: &MailboxKey, at_most: Duration) {
        self.clock.sleep(at_most).await;
    }
}

/// An order's credential, and the order without it.
fn without_credential(order: &Order) -> (Option<bullpen_core::mailbox::Credential>, Order) {
    match order {
        Order::Assigned(assignment) => (
            assignment.credential.clone(),
            Order::Assigned(Assignment { credential: None, ..assignment.clone() }),
        ),
        Order::Withdrawn(_) => (None, order.clone()),
    }
}

fn stored_inbox(stored: &Stored) -> Result<Inbox, Fault> {
    if stored.text("order_doc")?.len() > MAILBOX_BYTES_MAX {
        return Err(stored.unreadable("the order is too long"));
    }
    let mut order: Order = stored.document("order_doc")?;
    if let (Order::Assigned(assignment), Some(_)) = (&mut order, stored.maybe("credential_doc")) {
        assignment.credential = Some(stored.document("credential_doc")?);
    }
    Ok(Inbox { assigned: Generation(stored.number("assigned")?), order })
}

/// Reads a report. Its writer is an agent or another process with root on the instance, so it may
/// have any attribute of any type and length.
fn read_report(item: Item) -> Result<Report, UnreadableReport> {
    let stored = Stored::new(ItemKind::Report, item).map_err(|fault| match fault {
        Fault::Unreadable(why) => UnreadableReport::because(why),
        other => UnreadableReport::because(other),
    })?;
    stored_report(&stored)
}

fn stored_report(stored: &Stored) -> Result<Report, UnreadableReport> {
    const BEAT: &str = "beat_doc";
    let beat = stored.maybe(BEAT);
    if beat.is_none() && stored.has(BEAT) {
        return Err(UnreadableReport::because("its beat is no text"));
    }
    let signals = stored.texts_beginning("signal_");
    let signals =
        signals.ok_or_else(|| UnreadableReport::because("one of its signals is not a text"))?;
    RawReport { beat, signals: signals.into_iter().collect() }.read()
}

/// A kind as serde spells it.
fn kind_name(kind: SignalKind) -> String {
    match serde_json::to_value(kind) {
        Ok(serde_json::Value::String(name)) => name,
        other => unreachable!("a kind is a string, not {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use bullpen_core::instance::Owner;
    use bullpen_core::mailbox::{AgentPhase, Credential, Secret};
    use bullpen_core::time::Timestamp;

    use super::*;
    use crate::table::fixture::stored;

    fn at() -> Timestamp {
        Timestamp::from_millis(1_767_600_000_123)
    }

    #[test]
    fn an_inbox_matches_its_fixture() {
        let assignment = Assignment {
            generation: Generation(7),
            owner: Owner::Job("41234567890".into()),
            runner: "prod-41234567890-1".into(),
            label: "warm".to_owned(),
            credential: Some(Credential::Jit(Secret::new("not a real one"))),
            register_by: None,
            hard_cap: at(),
            issued_at: None,
            own_run: None,
            group: None,
            ephemeral: false,
        };
        let inbox = Inbox { assigned: Generation(7), order: Order::Assigned(assignment) };
        let file = stored(ItemKind::Inbox, include_str!("../fixtures/v1/inbox.json"));
        assert_eq!(stored_inbox(&file).unwrap(), inbox);
    }

    #[test]
    fn a_report_matches_its_fixture() {
        let beat = Beat { seq: 9, at: at(), phase: AgentPhase::Busy, boot: "boot-1".to_owned() };
        let signal = Signal {
            generation: Generation(7),
            owner: None,
            at: at(),
            detail: "21".to_owned(),
            ran: None,
        };
        let signals = [(SignalKind::Registered, signal)].into();
        let file = stored(ItemKind::Report, include_str!("../fixtures/v1/report.json"));
        assert_eq!(stored_report(&file).unwrap(), Report { beat: Some(beat), signals });
    }

    #[test]
    fn an_order_is_separated_from_its_credential() {
        let inbox =
            stored_inbox(&stored(ItemKind::Inbox, include_str!("../fixtures/v1/inbox.json")))
                .unwrap();
        let (credential, bare) = without_credential(&inbox.order);
        assert!(credential.is_some());
        assert!(matches!(bare, Order::Assigned(Assignment { credential: None, .. })));
    }
}
