//! A stack's two tables: create them, refuse tables of another layout, remove them.
//!
//! Every function may run again at any time, in several processes at once. An item of the state
//! table holds the version of the layout, so that a program refuses another layout before it
//! writes.
//!
//! Not here: queues (`Queues::ensure` creates each when its class is known).

use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::delete_table::DeleteTableError;
use aws_sdk_dynamodb::operation::describe_table::DescribeTableError;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, LocalSecondaryIndex,
    PointInTimeRecoverySpecification, PointInTimeRecoveryStatus, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use bullpen_core::ports::{Clock, Fault, ItemKind};

use crate::fault::{Verdict, judge};
use crate::ledger::keys::Index;
use crate::names::StackName;
use crate::table::{Key, Table, n};

/// The layout that this program reads and writes.
pub const LAYOUT: u32 = 1;

/// How often `ready` and `gone` look at a table before they give up.
const LOOKS_MAX: u32 = 60;
/// The time between two looks. AWS creates a table in some ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BUILT: &str = "everything that the request needs is set";

/// Why a stack's tables cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// An AWS call failed.
    #[error("the tables of the stack cannot be set up")]
    Aws(#[from] Fault),
    /// A table does not exist.
    #[error("table {table} does not exist: run `bullpen refresh`")]
    Missing {
        /// Its name.
        table: String,
    },
    /// Another version of Bullpen created the table.
    #[error(
        "table {table} has layout {found}; this program works with layout {LAYOUT} only: \
             use the version of Bullpen that made it, or another stack"
    )]
    OtherLayout {
        /// Its name.
        table: String,
        /// The layout that it has.
        found: u32,
    },
    /// A table of another program has the name.
    #[error(
        "table {table} does not belong to Bullpen: its keys or indexes differ; choose another \
             name for the stack"
    )]
    NotOurs {
        /// Its name.
        table: String,
    },
    /// AWS has not removed the table in time.
    #[error("table {table} is still being removed; try again in a minute")]
    StillThere {
        /// Its name.
        table: String,
    },
    /// AWS has not created the table in time.
    #[error("table {table} is still being created; try again in a minute")]
    NotReady {
        /// Its name.
        table: String,
    },
}

/// The keys and indexes of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `pk` and `sk`, with the local indexes.
    State,
    /// `pk` only, because the policy of instances confines each by `pk`.
    Mailbox,
}

impl Shape {
    /// The key's attributes, in order.
    fn key(self) -> &'static [(&'static str, KeyType)] {
        match self {
            Self::State => &[("pk", KeyType::Hash), ("sk", KeyType::Range)],
            Self::Mailbox => &[("pk", KeyType::Hash)],
        }
    }

    fn indexes(self) -> &'static [Index] {
        match self {
            Self::State => &Index::ALL,
            Self::Mailbox => &[],
        }
    }

    /// Whether an existing table has this shape.
    fn fits(self, table: &TableDescription) -> bool {
        let has = |index: &Index| {
            let mut found = table.local_secondary_indexes().iter();
            found.any(|found| found.index_name() == Some(index.name()))
        };
        table.key_schema() == self.schema() && self.indexes().iter().all(has)
    }

    fn schema(self) -> Vec<KeySchemaElement> {
        self.key().iter().map(|(name, kind)| element(name, kind.clone())).collect()
    }
}

fn element(name: &str, kind: KeyType) -> KeySchemaElement {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build().expect(BUILT)
}

fn tables(config: &SdkConfig, stack: &StackName) -> [(Table, Shape); 2] {
    [
        (Table::new(config, stack.state_table()), Shape::State),
        (Table::new(config, stack.mailbox_table()), Shape::Mailbox),
    ]
}

/// Creates the missing tables of a stack and refuses existing ones of another layout. Returns the
/// changes; writes nothing if nothing is missing.
pub async fn ensure(
    config: &SdkConfig,
    stack: &StackName,
    clock: &impl Clock,
) -> Result<Vec<String>, SetupError> {
    let tables = tables(config, stack);
    let mut done = Vec::new();
    for (table, shape) in &tables {
        if describe(table).await?.is_none() {
            create(table, *shape).await?;
            done.push(format!("made table {}", table.name));
        }
    }
    for (table, shape) in &tables {
        ready(table, *shape, clock).await?;
        if enable_expiry(table).await? {
            done.push(format!("enabled expiry of items in table {}", table.name));
        }
    }
    let [(state, _), _] = &tables;
    if enable_recovery(state).await? {
        done.push(format!("enabled point-in-time recovery of table {}", state.name));
    }
    if state.get(STAMP_KIND, &stamp_key(), true).await?.is_none() {
        stamp(state).await?;
    }
    layout(state).await?;
    Ok(done)
}

/// The names of a stack's missing tables. Changes nothing.
pub async fn missing(config: &SdkConfig, stack: &StackName) -> Result<Vec<String>, SetupError> {
    let mut missing = Vec::new();
    for (table, _) in tables(config, stack) {
        if describe(&table).await?.is_none() {
            missing.push(table.name);
        }
    }
    Ok(missing)
}

/// Removes a stack's tables, waits until they are gone, and returns the changes. It removes the
/// ledger's table last, so that an interrupted `bullpen destroy` can run again. If one table is not
/// ours, it removes neither.
pub async fn remove(
    config: &SdkConfig,
    stack: &StackName,
    clock: &impl Clock,
) -> Result<Vec<String>, SetupError> {
    let [state, mailbox] = tables(config, stack);
    let mut existing = Vec::new();
    for (table, shape) in [mailbox, state] {
        match describe(&table).await? {
            Some(found) if !shape.fits(&found) => {
                return Err(SetupError::NotOurs { table: table.name });
            }
            Some(_) => existing.push(table),
            None => {}
        }
    }
    let mut done = Vec::new();
    for table in existing {
        delete(&table).await?;
        gone(&table, clock).await?;
        done.push(format!("removed table {}", table.name));
    }
    Ok(done)
}

async fn delete(table: &Table) -> Result<(), Fault> {
    match table.client.delete_table().table_name(&table.name).send().await {
        Ok(_) => Ok(()),
        // Another process removed it, or is removing it.
        Err(error)
            if error.as_service_error().is_some_and(|error| {
                DeleteTableError::is_resource_not_found_exception(error)
                    || DeleteTableError::is_resource_in_use_exception(error)
            }) =>
        {
            Ok(())
        }
        Err(error) => Err(judge(&error).fault()),
    }
}

async fn gone(table: &Table, clock: &impl Clock) -> Result<(), SetupError> {
    for _ in 0..LOOKS_MAX {
        if describe(table).await?.is_none() {
            return Ok(());
        }
        clock.sleep(LOOK_EVERY).await;
    }
    Err(SetupError::StillThere { table: table.name.clone() })
}

/// Checks that a stack's tables exist and have this layout. Changes nothing.
pub async fn verify(config: &SdkConfig, stack: &StackName) -> Result<(), SetupError> {
    let tables = tables(config, stack);
    for (table, shape) in &tables {
        match describe(table).await? {
            Some(found) if shape.fits(&found) => {}
            Some(_) => return Err(SetupError::NotOurs { table: table.name.clone() }),
            None => return Err(SetupError::Missing { table: table.name.clone() }),
        }
    }
    let [(state, _), _] = &tables;
    layout(state).await
}

async fn describe(table: &Table) -> Result<Option<TableDescription>, Fault> {
    match table.client.describe_table().table_name(&table.name).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error)
            if error
                .as_service_error()
                .is_some_and(DescribeTableError::is_resource_not_found_exception) =>
        {
            Ok(None)
        }
        Err(error) => Err(judge(&error).fault()),
    }
}

async fn create(table: &Table, shape: Shape) -> Result<(), Fault> {
    let sorts = shape.indexes().iter().map(|index| index.name());
    let names = shape.key().iter().map(|(name, _)| *name).chain(sorts);
    let definitions = names.map(|name| {
        let definition = AttributeDefinition::builder().attribute_name(name);
        definition.attribute_type(ScalarAttributeType::S).build().expect(BUILT)
    });
    let indexes: Vec<_> = shape.indexes().iter().map(|index| local(*index)).collect();
    let call = table
        .client
        .create_table()
        .table_name(&table.name)
        .billing_mode(BillingMode::PayPerRequest)
        .set_attribute_definitions(Some(definitions.collect()))
        .set_key_schema(Some(shape.schema()))
        .set_local_secondary_indexes((!indexes.is_empty()).then_some(indexes));
    match call.send().await {
        Ok(_) => Ok(()),
        // Another process created it first; `ready` checks its shape next.
        Err(error)
            if error
                .as_service_error()
                .is_some_and(CreateTableError::is_resource_in_use_exception) =>
        {
            Ok(())
        }
        Err(error) => Err(judge(&error).fault()),
    }
}

/// Projects keys only: a listing reads the items themselves, and a write that changes no sort key
/// costs nothing in the index.
fn local(index: Index) -> LocalSecondaryIndex {
    let keys_only = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    LocalSecondaryIndex::builder()
        .index_name(index.name())
        .key_schema(element("pk", KeyType::Hash))
        .key_schema(element(index.name(), KeyType::Range))
        .projection(keys_only)
        .build()
        .expect(BUILT)
}

async fn ready(table: &Table, shape: Shape, clock: &impl Clock) -> Result<(), SetupError> {
    for _ in 0..LOOKS_MAX {
        match describe(table).await? {
            Some(found) if !shape.fits(&found) => {
                return Err(SetupError::NotOurs { table: table.name.clone() });
            }
            Some(found) if found.table_status() == Some(&TableStatus::Active) => return Ok(()),
            _ => clock.sleep(LOOK_EVERY).await,
        }
    }
    Err(SetupError::NotReady { table: table.name.clone() })
}

/// Makes DynamoDB delete items after their `forget_at`; returns whether that was a change.
async fn enable_expiry(table: &Table) -> Result<bool, Fault> {
    let answer = table.client.describe_time_to_live().table_name(&table.name).send().await;
    let answer = answer.map_err(|error| judge(&error).fault())?;
    let status = answer.time_to_live_description.and_then(|found| found.time_to_live_status);
    if matches!(status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)) {
        return Ok(false);
    }
    let wanted = TimeToLiveSpecification::builder().attribute_name("forget_at").enabled(true);
    let call = table.client.update_time_to_live().table_name(&table.name);
    let call = call.time_to_live_specification(wanted.build().expect(BUILT));
    call.send().await.map(|_| true).map_err(|error| judge(&error).fault())
}

/// Lets an operator restore any second of the last weeks; returns whether that was a change.
async fn enable_recovery(table: &Table) -> Result<bool, Fault> {
    if is_recoverable(table).await? {
        return Ok(false);
    }
    let wanted = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
    let call = table.client.update_continuous_backups().table_name(&table.name);
    let call = call.point_in_time_recovery_specification(wanted.build().expect(BUILT));
    match call.send().await.map_err(|error| judge(&error).fault()) {
        Ok(_) => Ok(true),
        Err(fault) if is_unknown(&fault) => {
            tracing::warn!(table = table.name, "point-in-time recovery not supported by DynamoDB");
            Ok(false)
        }
        Err(fault) => Err(fault),
    }
}

async fn is_recoverable(table: &Table) -> Result<bool, Fault> {
    let call = table.client.describe_continuous_backups().table_name(&table.name);
    match call.send().await.map_err(|error| judge(&error).fault()) {
        Ok(answer) => {
            let status = answer
                .continuous_backups_description
                .and_then(|found| found.point_in_time_recovery_description)
                .and_then(|found| found.point_in_time_recovery_status);
            Ok(status == Some(PointInTimeRecoveryStatus::Enabled))
        }
        Err(fault) if is_unknown(&fault) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Whether the server does not know the operation, as DynamoDB Local does not; it keeps no data.
fn is_unknown(fault: &Fault) -> bool {
    matches!(fault, Fault::Unclassified(text) if text.starts_with("UnknownOperationException"))
}

/// The layout's item has the shape of a document.
const STAMP_KIND: ItemKind = ItemKind::Document;

fn stamp_key() -> Key {
    Key { pk: "layout".to_owned(), sk: Some("layout".to_owned()) }
}

/// Writes the layout's version if the table has none.
async fn stamp(state: &Table) -> Result<(), Fault> {
    let call = state
        .client
        .put_item()
        .table_name(&state.name)
        .set_item(Some(stamp_key().attributes()))
        .item("v", n(STAMP_KIND.version()))
        .item("layout_version", n(LAYOUT))
        .condition_expression("attribute_not_exists(pk)");
    match call.send().await.map_err(|error| judge(&error)) {
        Ok(_) | Err(Verdict::Lost) => Ok(()),
        Err(verdict) => Err(verdict.fault()),
    }
}

async fn layout(state: &Table) -> Result<(), SetupError> {
    let table = state.name.clone();
    let Some(stored) = state.get(STAMP_KIND, &stamp_key(), true).await? else {
        return Err(SetupError::NotOurs { table });
    };
    match stored.number("layout_version")? {
        LAYOUT => Ok(()),
        found => Err(SetupError::OtherLayout { table, found }),
    }
}
