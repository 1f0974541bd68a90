//! The AWS engine's stores, DynamoDB and SQS, and a house of them with machines that are processes of
//! this host.
//!
//! Region, endpoint and credentials are those of every AWS tool. Agents of this host are started with the
//! same variables, so that they find their mailboxes as this command does; jobs do not see them.
//!
//! Not here: the stores themselves (`bullpen-aws`).

use std::sync::Arc;

use bullpen_agent::machine::MailboxPlace;
use bullpen_aws::{DynamoLedger, DynamoMailbox, SdkConfig, SqsQueues, StackName, config, setup};
use bullpen_embedded::fleet::ProcessFleet;
use bullpen_embedded::system::SystemClock;

use super::{
    IfMissing, Runtime, RuntimeError, RuntimePlan, RuntimePorts, Stores, Told, make_state, process,
    put_together,
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

/// What the AWS configuration's variables begin with.
const VARIABLES: &str = "AWS_";

/// A stack's place at AWS.
pub(crate) struct AwsSite {
    pub(crate) config: SdkConfig,
    pub(crate) name: StackName,
    pub(crate) clock: Arc<SystemClock>,
}

impl AwsSite {
    /// Where the configuration says it is. Nothing is asked of AWS yet but who we are.
    pub(crate) async fn find(plans: &RuntimePlan<'_>) -> Result<Self, RuntimeError> {
        let name =
            StackName::new(&plans.file.name).map_err(|error| RuntimeError::Aws(error.into()))?;
        let config = config::load(plans.file.aws.region.as_deref()).await;
        let config = config.map_err(|error| RuntimeError::Aws(error.into()))?;
        Ok(Self { config, name, clock: Arc::new(SystemClock::new()) })
    }

    /// The region.
    pub(super) fn region(&self) -> Option<String> {
        self.config.region().map(ToString::to_string)
    }

    /// Whether its ledger's table is there.
    pub(crate) async fn has_ledger(&self) -> Result<bool, RuntimeError> {
        let missing = setup::missing(&self.config, &self.name).await;
        let missing = missing.map_err(|error| RuntimeError::Aws(error.into()))?;
        Ok(!missing.contains(&self.name.state_table()))
    }

    /// Removes its tables; says which.
    pub(crate) async fn remove_tables(&self) -> Result<Vec<String>, RuntimeError> {
        let removed = setup::remove(&self.config, &self.name, &*self.clock).await;
        removed.map_err(|error| RuntimeError::Aws(error.into()))
    }

    /// Makes its tables, if they are to be made; says what was.
    pub(super) async fn made(&self, missing: IfMissing) -> Result<Vec<String>, RuntimeError> {
        if missing != IfMissing::Make {
            return Ok(Vec::new());
        }
        let made = setup::ensure(&self.config, &self.name, &*self.clock).await;
        made.map_err(|error| RuntimeError::Aws(error.into()))
    }

    /// Its stores. `region`: where agents look for them, if not where their own environment says.
    pub(super) fn stores(&self, region: Option<String>) -> AwsStores {
        let Self { config, name, clock } = self;
        let dynamodb = name.to_string();
        Stores {
            ledger: DynamoLedger::new(config, name, Arc::clone(clock)),
            queues: SqsQueues::new(config, name),
            mailbox: DynamoMailbox::new(config, name, Arc::clone(clock)),
            place: MailboxPlace::DynamoDb { dynamodb, region, key: None },
        }
    }
}

/// Builds it, with the tables if they are to be made.
pub(crate) async fn build(
    plans: &RuntimePlan<'_>,
    missing: IfMissing,
) -> Result<Runtime<AwsPorts>, RuntimeError> {
    let state = make_state(&plans.common.stack.state)?;
    let site = AwsSite::find(plans).await?;
    let made = site.made(missing).await?;
    let agents_have =
        plans.environment.iter().filter(|(variable, _)| variable.starts_with(VARIABLES));
    let agents_have = agents_have.map(super::own_pair).collect();
    let clock = Arc::clone(&site.clock);
    let fleet = |told: Told<'_>| process::fleet(plans, &state, &told, agents_have, clock);
    let base = process::base(&plans.common.github, plans.file);
    let clock = Arc::clone(&site.clock);
    let house =
        put_together(plans, site.stores(None), clock, (base, missing.into()), fleet).await?;
    Ok(Runtime { made, ..house })
}
