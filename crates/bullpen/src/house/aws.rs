//! The AWS engine's stores: DynamoDB and SQS, with machines that are processes of this host.
//!
//! Region, endpoint and credentials are those of every AWS tool. Agents are started with the same
//! variables, so that they find their mailboxes as this command does; jobs do not see them.
//!
//! Not here: the stores themselves (`bullpen-aws`).

use std::sync::Arc;

use bullpen_agent::machine::MailboxPlace;
use bullpen_aws::{DynamoLedger, DynamoMailbox, SqsQueues, StackName, config, setup};
use bullpen_embedded::system::SystemClock;

use super::{House, HousePorts, NoHouse, Plans, Stores, make_state, put_together};

/// The ports of the AWS engine.
pub(crate) type AwsPorts =
    HousePorts<DynamoLedger<SystemClock>, SqsQueues, DynamoMailbox<SystemClock>>;

/// What the AWS configuration's variables begin with.
const VARIABLES: &str = "AWS_";

/// Builds it, with the tables if they are to be made.
pub(crate) async fn build(
    plans: &Plans<'_>,
    makes_stores: bool,
) -> Result<House<AwsPorts>, NoHouse> {
    let state = make_state(&plans.common.stack.state)?;
    let clock = Arc::new(SystemClock::new());
    let name = StackName::new(&plans.file.name).map_err(|error| NoHouse::Aws(error.into()))?;
    let config = config::load(plans.file.aws.region.as_deref()).await;
    let config = config.map_err(|error| NoHouse::Aws(error.into()))?;
    if makes_stores {
        let made = setup::ensure(&config, &name, &*clock).await;
        made.map_err(|error| NoHouse::Aws(error.into()))?;
    }
    let agents_have =
        plans.environment.iter().filter(|(variable, _)| variable.starts_with(VARIABLES));
    let stores = Stores {
        ledger: DynamoLedger::new(&config, &name, Arc::clone(&clock)),
        queues: SqsQueues::new(&config, &name),
        mailbox: DynamoMailbox::new(&config, &name, Arc::clone(&clock)),
        place: MailboxPlace::DynamoDb { dynamodb: name.to_string(), region: None, key: None },
        agents_have: agents_have.map(super::own_pair).collect(),
    };
    put_together(plans, &state, stores, clock).await
}
