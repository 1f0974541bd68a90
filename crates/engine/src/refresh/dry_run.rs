//! Dry run: ports that read the real state and only note the writes.
//!
//! A write answers as if it had won, so the code above continues as usual. No call through these
//! ports changes a store, a machine or GitHub: this module makes sure of that by its construction,
//! so no caller has to check a flag.
//!
//! Not here: the steps that run dry ([`super`]).

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::class::RunnerClass;
use bullpen_core::creation::{Ceiling, Intent, LaunchRequest, Scope};
use bullpen_core::ids::{
    ClassName, Generation, InstanceId, IntentId, JobId, LeaseName, MailboxKey, PoolName, QueueName,
    Receipt, Repository, Revision, RunAttempt, RunnerName,
};
use bullpen_core::instance::{Owner, Record};
use bullpen_core::lease::Lease;
use bullpen_core::mailbox::{
    Beat, Credential, Inbox, Order, ReportRead, Secret, Signal, SignalKind,
};
use bullpen_core::message::Advert;
use bullpen_core::ports::{
    ClaimWrite, Consistency, Delivery, Depth, Document, Fault, Fleet, Forge, JobRow, Launched,
    LearnedSite, Ledger, Listing, Machine, Mailbox, Outgoing, Page, Ports, QueueSpec, Queues,
    Recorded, Reserved, Runner, RunnerSpec, RunnerTokens, Site, StartOutcome, StopOrder, Tag,
    WaitingAt, Written,
};
use bullpen_core::rates::Rates;
use bullpen_core::site::SiteDocument;
use bullpen_core::time::Timestamp;

/// The ports of a dry run, over real ports.
#[derive(Debug)]
pub struct DryRun<'p, P> {
    real: &'p P,
    notes: Mutex<Vec<String>>,
}

impl<'p, P> DryRun<'p, P> {
    /// Makes the ports of a dry run over these.
    pub fn new(real: &'p P) -> Self {
        Self { real, notes: Mutex::default() }
    }

    /// The writes that would have been made so far, in order.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, line: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// Refuses a call that no refresh makes.
fn refused<T>() -> Result<T, Fault> {
    Err(Fault::Denied("a dry run does not do this".to_owned()))
}

impl<P: Ports> Ports for DryRun<'_, P> {
    type Ledger = Self;
    type Queues = Self;
    type Mailbox = Self;
    type Fleet = Self;
    type Site = Self;
    type Forge = Self;
    type Clock = P::Clock;
    type Ids = P::Ids;

    fn ledger(&self) -> &Self {
        self
    }
    fn queues(&self) -> &Self {
        self
    }
    fn mailbox(&self) -> &Self {
        self
    }
    fn fleet(&self) -> &Self {
        self
    }
    fn site(&self) -> &Self {
        self
    }
    fn forge(&self) -> &Self {
        self
    }
    fn clock(&self) -> &P::Clock {
        self.real.clock()
    }
    fn ids(&self) -> &P::Ids {
        self.real.ids()
    }
}

impl<P: Ports> Ledger for DryRun<'_, P> {
    async fn read(&self, id: &InstanceId) -> Result<Option<Record>, Fault> {
        self.real.ledger().read(id).await
    }

    async fn claim(&self, _: &ClaimWrite) -> Result<Written<Record>, Fault> {
        refused()
    }

    async fn replace(&self, seen: &Record, next: &Record) -> Result<Written<Record>, Fault> {
        let (from, to) = (seen.state.name().as_str(), next.state.name().as_str());
        self.note(format!("{}: {from} -> {to}", seen.id));
        Ok(Written::Won(Record { revision: seen.revision.next(), ..next.clone() }))
    }

    async fn bury(&self, seen: &Record, tombstone: &Record) -> Result<Written<Record>, Fault> {
        self.replace(seen, tombstone).await
    }

    async fn owned_by(&self, owner: &Owner) -> Result<Listing<Record>, Fault> {
        self.real.ledger().owned_by(owner).await
    }

    async fn idle_in(&self, class: &ClassName) -> Result<Listing<Advert>, Fault> {
        self.real.ledger().idle_in(class).await
    }

    async fn standing_by(&self, pool: &PoolName) -> Result<Listing<Record>, Fault> {
        self.real.ledger().standing_by(pool).await
    }

    async fn due(&self, before: Timestamp, after: Option<&str>) -> Result<Page<Record>, Fault> {
        self.real.ledger().due(before, after).await
    }

    async fn live(&self, after: Option<&str>) -> Result<Page<Record>, Fault> {
        self.real.ledger().live(after).await
    }

    async fn reserve(&self, _: &Intent, _: &[Ceiling]) -> Result<Written<Reserved>, Fault> {
        refused()
    }

    async fn used(&self, scopes: &[Scope]) -> Result<Vec<u32>, Fault> {
        self.real.ledger().used(scopes).await
    }

    async fn intent(&self, id: &IntentId) -> Result<Option<Intent>, Fault> {
        self.real.ledger().intent(id).await
    }

    async fn intents(&self, after: Option<&str>) -> Result<Page<Intent>, Fault> {
        self.real.ledger().intents(after).await
    }

    async fn record(&self, record: &Record) -> Result<Written<Recorded>, Fault> {
        self.note(format!("{}: recorded", record.id));
        let stored = Record { revision: Revision(1), ..record.clone() };
        Ok(Written::Won(Recorded::Stored(stored)))
    }

    async fn give_back(&self, seen: &Intent) -> Result<Written<()>, Fault> {
        self.note(format!("launch {}: {} machines given up", seen.id, seen.outstanding));
        Ok(Written::Won(()))
    }

    async fn lease(&self, name: &LeaseName) -> Result<Option<Lease>, Fault> {
        self.real.ledger().lease(name).await
    }

    async fn write_lease(&self, _: Option<&Lease>, _: &Lease) -> Result<Written<Lease>, Fault> {
        refused()
    }

    async fn row(&self, job: &JobId) -> Result<Option<JobRow>, Fault> {
        self.real.ledger().row(job).await
    }

    async fn write_row(&self, _: Option<Revision>, _: &JobRow) -> Result<Written<JobRow>, Fault> {
        refused()
    }

    async fn waiting_repositories(&self, lane: &str) -> Result<Vec<Repository>, Fault> {
        self.real.ledger().waiting_repositories(lane).await
    }

    async fn waiting(&self, at: &WaitingAt, after: Option<&str>) -> Result<Page<JobRow>, Fault> {
        self.real.ledger().waiting(at, after).await
    }

    async fn rows_due(
        &self,
        before: Timestamp,
        after: Option<&str>,
    ) -> Result<Page<JobRow>, Fault> {
        self.real.ledger().rows_due(before, after).await
    }

    async fn document(&self, collection: &str, name: &str) -> Result<Option<Document>, Fault> {
        self.real.ledger().document(collection, name).await
    }

    /// The body is not noted: it may hold a secret.
    async fn write_document(
        &self,
        seen: Option<Revision>,
        document: &Document,
    ) -> Result<Written<Document>, Fault> {
        self.note(format!("{}/{}: stored", document.collection, document.name));
        let revision = seen.map_or(Revision(1), Revision::next);
        Ok(Written::Won(Document { revision, ..document.clone() }))
    }

    async fn documents(&self, collection: &str) -> Result<Listing<Document>, Fault> {
        self.real.ledger().documents(collection).await
    }
}

impl<P: Ports> Queues for DryRun<'_, P> {
    async fn ensure(&self, spec: &QueueSpec) -> Result<(), Fault> {
        match self.real.queues().depth(&spec.name).await {
            Err(Fault::NotFound) => self.note(format!("queue {}: made", spec.name)),
            Err(fault) => return Err(fault),
            Ok(_) => {}
        }
        Ok(())
    }

    async fn remove(&self, queue: &QueueName) -> Result<(), Fault> {
        self.note(format!("queue {queue}: removed"));
        Ok(())
    }

    async fn send(
        &self,
        queue: &QueueName,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        self.note(format!("queue {queue}: {} messages sent", messages.len()));
        Ok(vec![Ok(()); messages.len()])
    }

    /// Receiving hides messages from others.
    async fn receive(&self, _: &QueueName, _: usize, _: Duration) -> Result<Vec<Delivery>, Fault> {
        refused()
    }

    async fn delete(&self, _: &QueueName, _: &[Receipt]) -> Result<(), Fault> {
        refused()
    }

    async fn defer(&self, _: &QueueName, _: &Receipt, _: Duration) -> Result<(), Fault> {
        refused()
    }

    /// A queue that would have been made is empty.
    async fn depth(&self, queue: &QueueName) -> Result<Depth, Fault> {
        match self.real.queues().depth(queue).await {
            Err(Fault::NotFound) => Ok(Depth::default()),
            depth => depth,
        }
    }
}

impl<P: Ports> Mailbox for DryRun<'_, P> {
    async fn post(&self, key: &MailboxKey, order: &Order) -> Result<Written<Inbox>, Fault> {
        let stored = self.real.mailbox().inbox(key, Consistency::Consistent).await?;
        let Ok(next) = Inbox::accept(stored.as_ref(), order.clone()) else {
            return Ok(Written::Lost);
        };
        self.note(format!("{key}: posted an order of generation {}", order.rank().generation));
        Ok(Written::Won(next))
    }

    async fn redact(&self, _: &MailboxKey, _: Generation) -> Result<(), Fault> {
        refused()
    }

    async fn inbox(&self, key: &MailboxKey, read: Consistency) -> Result<Option<Inbox>, Fault> {
        self.real.mailbox().inbox(key, read).await
    }

    async fn reports(&self, keys: &[MailboxKey]) -> Result<Vec<ReportRead>, Fault> {
        self.real.mailbox().reports(keys).await
    }

    async fn beat(&self, _: &MailboxKey, _: &Beat) -> Result<(), Fault> {
        refused()
    }

    async fn signal(&self, _: &MailboxKey, _: SignalKind, _: &Signal) -> Result<(), Fault> {
        refused()
    }

    /// No order was posted, so no agent will answer.
    async fn wait(&self, _: &MailboxKey, _: Duration) {}
}

impl<P: Ports> Fleet for DryRun<'_, P> {
    fn rates(&self) -> Rates {
        self.real.fleet().rates()
    }

    async fn launch(&self, _: &LaunchRequest) -> Result<Launched, Fault> {
        refused()
    }

    async fn start(&self, _: &[InstanceId]) -> Result<Vec<(InstanceId, StartOutcome)>, Fault> {
        refused()
    }

    async fn stop(&self, _: &[StopOrder]) -> Result<(), Fault> {
        refused()
    }

    async fn terminate(&self, ids: &[InstanceId]) -> Result<(), Fault> {
        for id in ids {
            self.note(format!("{id}: asked the cloud to end it"));
        }
        Ok(())
    }

    async fn tag(&self, ids: &[InstanceId], tag: Tag) -> Result<(), Fault> {
        for id in ids {
            self.note(format!("{id}: tagged {tag:?}"));
        }
        Ok(())
    }

    async fn list(&self, after: Option<&str>) -> Result<Page<Machine>, Fault> {
        self.real.fleet().list(after).await
    }

    fn shows_within(&self) -> Duration {
        self.real.fleet().shows_within()
    }

    async fn describe(&self, ids: &[InstanceId]) -> Result<Listing<Machine>, Fault> {
        self.real.fleet().describe(ids).await
    }
}

impl<P: Ports> Site for DryRun<'_, P> {
    async fn learn(
        &self,
        born: &str,
        kept: Option<&SiteDocument>,
    ) -> Result<Option<LearnedSite>, Fault> {
        self.real.site().learn(born, kept).await
    }

    async fn prepare(&self, classes: &[RunnerClass], _really: bool) -> Result<Vec<String>, Fault> {
        self.real.site().prepare(classes, false).await
    }
}

impl<P: Ports> Forge for DryRun<'_, P> {
    async fn credential(&self, _: &RunnerSpec) -> Result<Credential, Fault> {
        refused()
    }

    fn credential_wait(&self) -> Duration {
        self.real.forge().credential_wait()
    }

    async fn delete(&self, runner: &RunnerName) -> Deletion {
        self.note(format!("runner {runner}: deleted, unless it is busy"));
        Deletion::Busy
    }

    async fn runners(&self) -> Result<Vec<Runner>, Fault> {
        self.real.forge().runners().await
    }

    /// Returns empty tokens in place of those that GitHub would mint.
    async fn tokens(&self) -> Result<RunnerTokens, Fault> {
        self.note("asked GitHub for new tokens".to_owned());
        let nothing = Secret::new("");
        let now = bullpen_core::ports::Clock::now(self.real.clock());
        Ok(RunnerTokens { registration: nothing.clone(), removal: nothing, expires_at: now })
    }

    async fn is_from_fork(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        self.real.forge().is_from_fork(repository, run).await
    }

    async fn is_over(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        self.real.forge().is_over(repository, run).await
    }
}
