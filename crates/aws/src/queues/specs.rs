//! What a queue is: making it, and making it be as described.
//!
//! Not here: a queue's name ([`crate::names`]).

use aws_sdk_sqs::types::QueueAttributeName;
use bullpen_core::ports::{Fault, QueueKind, QueueSpec};

use super::{Address, HIDDEN_MAX, SqsQueues, nothing_said, whole_seconds};
use crate::fault::judge;
use crate::names::{self, FIFO_ENDING};

/// How long SQS keeps a message at most.
const RETENTION_MAX: std::time::Duration = std::time::Duration::from_secs(14 * 86_400);

/// Makes the queue if it is missing, by nothing but its name and kind, so that one that is there is
/// never in the way; then sets everything that may change.
pub(super) async fn ensure(queues: &SqsQueues, spec: &QueueSpec) -> Result<Address, Fault> {
    let fifo = spec.kind == QueueKind::Fifo;
    let name = names::queue(&queues.stack, &spec.name);
    let mut create = queues.client.create_queue();
    create = if fifo {
        let name = name + FIFO_ENDING;
        create.queue_name(name).attributes(QueueAttributeName::FifoQueue, "true")
    } else {
        create.queue_name(name)
    };
    let made = create.send().await.map_err(|error| judge(&error).fault())?;
    let url = made.queue_url.ok_or_else(|| nothing_said("a queue's address"))?;
    let hidden = whole_seconds(spec.visibility, HIDDEN_MAX).to_string();
    let kept = whole_seconds(spec.retention, RETENTION_MAX).to_string();
    let set = queues
        .client
        .set_queue_attributes()
        .queue_url(&url)
        .attributes(QueueAttributeName::VisibilityTimeout, hidden)
        .attributes(QueueAttributeName::MessageRetentionPeriod, kept)
        .attributes(QueueAttributeName::RedrivePolicy, redrive(queues, spec).await?);
    set.send().await.map_err(|error| judge(&error).fault())?;
    Ok(Address { url, fifo })
}

/// Where worn messages go; an empty text takes an earlier policy away.
async fn redrive(queues: &SqsQueues, spec: &QueueSpec) -> Result<String, Fault> {
    let Some((dead, receives)) = &spec.dead_letters else { return Ok(String::new()) };
    let address = queues.address(dead).await?;
    let call = queues.client.get_queue_attributes().queue_url(address.url);
    let answer = call.attribute_names(QueueAttributeName::QueueArn).send().await;
    let found = answer.map_err(|error| judge(&error).fault())?.attributes.unwrap_or_default();
    let arn = found.get(&QueueAttributeName::QueueArn);
    let arn = arn.ok_or_else(|| nothing_said("a queue's ARN"))?;
    let policy = serde_json::json!({ "deadLetterTargetArn": arn, "maxReceiveCount": receives });
    Ok(policy.to_string())
}
