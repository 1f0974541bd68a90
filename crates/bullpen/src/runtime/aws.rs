//! The AWS engine's stores, DynamoDB and SQS, and a runtime of them with machines that are
//! processes of this host.
//!
//! Region, endpoint and credentials come from the usual AWS configuration. Agents on this host get
//! the same variables, so that they find their mailboxes as this command does; jobs do not see
//! them.
//!
//! Not here: the stores themselves (`bullpen-aws`).

use std::sync::Arc;

use bullpen_agent::machine::MailboxPlace;
use bullpen_aws::dated::watched;
use bullpen_aws::{DynamoLedger, DynamoMailbox, SdkConfig, SqsQueues, StackName, config, setup};
use bullpen_core::clock_witness::ClockWitness;
use bullpen_embedded::fleet::ProcessFleet;
use bullpen_embedded::system::SystemClock;

use super::{
    IfMissing, MachineSettings, Runtime, RuntimeError, RuntimePlan, RuntimePorts, Stores, assemble,
    make_state, process,
};

/// The ports of the AWS engine with machines of this host.
pub(crate) type AwsPorts = RuntimePorts<
    DynamoLedger<SystemClock>,
    SqsQueues,
    DynamoMailbox<SystemClock>,
    ProcessFleet<SystemClock>,
>;

/// The AWS engine's stores.
pub(super) type AwsStores =
    Stores<DynamoLedger<SystemClock>, SqsQueues, DynamoMailbox<SystemClock>>;

/// The prefix of the AWS configuration's variables.
const VARIABLES: &str = "AWS_";

/// A stack's place at AWS.
pub(crate) struct AwsSite {
    pub(crate) config: SdkConfig,
    pub(crate) name: StackName,
    pub(crate) clock: Arc<SystemClock>,
    /// Sees the dates of AWS's answers. It judges the clock instead of GitHub's dates, which an
    /// Enterprise Server of one's own writes.
    pub(super) witness: ClockWitness,
}

impl AwsSite {
    /// Reads the configuration. It calls AWS only for credentials.
    pub(crate) async fn find(plan: &RuntimePlan<'_>) -> Result<Self, RuntimeError> {
        let name =
            StackName::new(&plan.file.name).map_err(|error| RuntimeError::Aws(error.into()))?;
        let config = config::load(plan.file.aws.region.as_deref()).await;
        let config = config.map_err(|error| RuntimeError::Aws(error.into()))?;
        let (clock, witness) = (Arc::new(SystemClock::new()), ClockWitness::of("AWS"));
        let config = watched(config, Arc::clone(&clock), witness.clone());
        Ok(Self { config, name, clock, witness })
    }

    /// The region.
    pub(super) fn region(&self) -> Option<String> {
        self.config.region().map(ToString::to_string)
    }

    /// Whether the ledger's table exists.
    pub(crate) async fn has_ledger(&self) -> Result<bool, RuntimeError> {
        let missing = setup::missing(&self.config, &self.name).await;
        let missing = missing.map_err(|error| RuntimeError::Aws(error.into()))?;
        Ok(!missing.contains(&self.name.state_table()))
    }

    /// Removes the stack's tables; returns what it removed.
    pub(crate) async fn remove_tables(&self) -> Result<Vec<String>, RuntimeError> {
        let removed = setup::remove(&self.config, &self.name, &*self.clock).await;
        removed.map_err(|error| RuntimeError::Aws(error.into()))
    }

    /// Creates missing tables if `missing` says so; returns what it created.
    pub(super) async fn create_tables(
        &self,
        missing: IfMissing,
    ) -> Result<Vec<String>, RuntimeError> {
        if missing != IfMissing::Make {
            return Ok(Vec::new());
        }
        let created = setup::ensure(&self.config, &self.name, &*self.clock).await;
        created.map_err(|error| RuntimeError::Aws(error.into()))
    }

    /// The stack's stores. `region`: where agents find them, if their own environment does not say.
    pub(super) fn stores(&self, region: Option<String>) -> AwsStores {
        let Self { config, name, clock, .. } = self;
        let dynamodb = name.to_string();
        Stores {
            ledger: DynamoLedger::new(config, name, Arc::clone(clock)),
            queues: SqsQueues::new(config, name),
            mailbox: DynamoMailbox::new(config, name, Arc::clone(clock)),
            place: MailboxPlace::DynamoDb { dynamodb, region, key: None },
        }
    }
}

/// Builds the runtime, and creates missing tables if `missing` says so.
pub(crate) async fn build(
    plan: &RuntimePlan<'_>,
    missing: IfMissing,
) -> Result<Runtime<AwsPorts>, RuntimeError> {
    let state = make_state(&plan.common.stack.state)?;
    let site = AwsSite::find(plan).await?;
    let created = site.create_tables(missing).await?;
    let agents_have =
        plan.environment.iter().filter(|(variable, _)| variable.starts_with(VARIABLES));
    let agents_have = agents_have.map(super::own_pair).collect();
    let clock = Arc::clone(&site.clock);
    let fleet =
        |machine: MachineSettings<'_>| process::fleet(plan, &state, &machine, agents_have, clock);
    let base = process::base(&plan.common.github, plan.file);
    let clock = Arc::clone(&site.clock);
    let read = (base, missing.into());
    let mut runtime = assemble(plan, site.stores(None), clock, read, fleet).await?;
    runtime.stack.clock = site.witness;
    Ok(Runtime { created, ..runtime })
}
