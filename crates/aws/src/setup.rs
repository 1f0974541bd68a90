//! A stack's two tables: making them, refusing those of another layout, removing them.
//!
//! Everything here may be done again at any time and by several at once. The layout's version is an
//! item of the state table, so that a program finds out before it writes anything whether it and the
//! table mean the same.
//!
//! Not here: queues; each is made by `Queues::ensure` when its class is known.

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
use bullpen_core::ports::{Clock, Fault};

use crate::fault::{Verdict, judge};
use crate::ledger::keys::Index;
use crate::names::StackName;
use crate::table::{ITEM_VERSION, Key, Table, n};

/// The layout that this program reads and writes.
pub const LAYOUT: u32 = 1;

/// How often a new table is looked at until it can be used.
const LOOKS_MAX: u32 = 60;
/// How long between two looks. A table takes some ten seconds.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BUILT: &str = "everything that the request needs is set";

/// Why a stack's tables cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// AWS would not.
    #[error("the tables of the stack cannot be set up")]
    Aws(#[from] Fault),
    /// It is not there.
    #[error("table {table} does not exist: run `bullpen refresh`")]
    Missing {
        /// Which one.
        table: String,
    },
    /// Another program's, or another version's.
    #[error(
        "table {table} has layout {found}; this program works with layout {LAYOUT} only: \
             use the version of Bullpen that made it, or another stack"
    )]
    OtherLayout {
        /// Which one.
        table: String,
        /// What it has.
        found: u32,
    },
    /// Something else has the name.
    #[error(
        "table {table} is not one of Bullpen's: its keys or indexes are others; name the \
             stack otherwise"
    )]
    NotOurs {
        /// Which one.
        table: String,
    },
    /// Its removal takes too long.
    #[error("table {table} is being removed and is still there; try again in a minute")]
    StillThere {
        /// Which one.
        table: String,
    },
    /// It takes too long.
    #[error("table {table} was made and cannot be used yet; try again in a minute")]
    NotReady {
        /// Which one.
        table: String,
    },
}

/// What a table is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// `pk` and `sk`, with the local indexes.
    State,
    /// `pk` alone, because an instance's policy is by `pk`.
    Mailbox,
}

impl Shape {
    /// The key's attributes, in their order.
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

    /// Whether a table that exists is of this shape.
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

/// Makes what is missing of a stack's tables and refuses what is there and of another layout; says what
/// was made. Where nothing is missing nothing is written.
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
        if forget_by_itself(table).await? {
            done.push(format!("table {} forgets by itself", table.name));
        }
    }
    let [(state, _), _] = &tables;
    if recoverable(state).await? {
        done.push(format!("table {} can be taken back in time", state.name));
    }
    if state.get(&stamp_key(), true).await?.is_none() {
        stamp(state).await?;
    }
    layout(state).await?;
    Ok(done)
}

/// Which of a stack's tables are not there. Changes nothing.
pub async fn missing(config: &SdkConfig, stack: &StackName) -> Result<Vec<String>, SetupError> {
    let mut missing = Vec::new();
    for (table, _) in tables(config, stack) {
        if describe(&table).await?.is_none() {
            missing.push(table.name);
        }
    }
    Ok(missing)
}

/// Removes a stack's tables, and waits until they are gone; says which. The ledger's goes last: while it
/// is there, whoever was interrupted can begin again. A table that is not ours stays, and then both do.
pub async fn remove(
    config: &SdkConfig,
    stack: &StackName,
    clock: &impl Clock,
) -> Result<Vec<String>, SetupError> {
    let [state, mailbox] = tables(config, stack);
    let mut there = Vec::new();
    for (table, shape) in [mailbox, state] {
        match describe(&table).await? {
            Some(found) if !shape.fits(&found) => {
                return Err(SetupError::NotOurs { table: table.name });
            }
            Some(_) => there.push(table),
            None => {}
        }
    }
    let mut done = Vec::new();
    for table in there {
        delete(&table).await?;
        gone(&table, clock).await?;
        done.push(format!("removed table {}", table.name));
    }
    Ok(done)
}

async fn delete(table: &Table) -> Result<(), Fault> {
    match table.client.delete_table().table_name(&table.name).send().await {
        Ok(_) => Ok(()),
        // Somebody else removed it, or is about to.
        Err(error)
            if error.as_service_error().is_some_and(|said| {
                DeleteTableError::is_resource_not_found_exception(said)
                    || DeleteTableError::is_resource_in_use_exception(said)
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

/// Whether a stack's tables are there and of this layout. Changes nothing.
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
        // Somebody else was quicker; its shape is looked at next.
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

/// Keys only: a listing reads the items as they are, and a write that moves none costs nothing here.
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

/// Lets DynamoDB delete what is past its time; whether that had to be said.
async fn forget_by_itself(table: &Table) -> Result<bool, Fault> {
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

/// Lets an operator go back to any second of the last weeks; whether that had to be said.
async fn recoverable(table: &Table) -> Result<bool, Fault> {
    if is_recoverable(table).await? {
        return Ok(false);
    }
    let wanted = PointInTimeRecoverySpecification::builder().point_in_time_recovery_enabled(true);
    let call = table.client.update_continuous_backups().table_name(&table.name);
    let call = call.point_in_time_recovery_specification(wanted.build().expect(BUILT));
    match call.send().await.map_err(|error| judge(&error).fault()) {
        Ok(_) => Ok(true),
        Err(fault) if is_unknown(&fault) => {
            tracing::warn!(
                table = table.name,
                "this DynamoDB knows no recovery to a point in time"
            );
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

/// DynamoDB Local, which forgets everything anyway.
fn is_unknown(fault: &Fault) -> bool {
    matches!(fault, Fault::Unclassified(said) if said.starts_with("UnknownOperationException"))
}

fn stamp_key() -> Key {
    Key { pk: "layout".to_owned(), sk: Some("layout".to_owned()) }
}

/// Writes the layout's version where there is none.
async fn stamp(state: &Table) -> Result<(), Fault> {
    let call = state
        .client
        .put_item()
        .table_name(&state.name)
        .set_item(Some(stamp_key().attributes()))
        .item("v", n(ITEM_VERSION))
        .item("layout_version", n(LAYOUT))
        .condition_expression("attribute_not_exists(pk)");
    match call.send().await.map_err(|error| judge(&error)) {
        Ok(_) | Err(Verdict::Lost) => Ok(()),
        Err(verdict) => Err(verdict.fault()),
    }
}

async fn layout(state: &Table) -> Result<(), SetupError> {
    let table = state.name.clone();
    let Some(stored) = state.get(&stamp_key(), true).await? else {
        return Err(SetupError::NotOurs { table });
    };
    match stored.number("layout_version")? {
        LAYOUT => Ok(()),
        found => Err(SetupError::OtherLayout { table, found }),
    }
}
