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
        .attributes(QueueAttributeName::MessageRetentionPeriod, kept);
    let set = match redrive(queues, spec, &url).await? {
        Some(policy) => set.attributes(QueueAttributeName::RedrivePolicy, policy),
        None => set,
    };
    set.send().await.map_err(|error| judge(&error).fault())?;
    Ok(Address { url, fifo })
}

/// Where worn messages go. An empty text takes an earlier policy away, and is said only if there is
/// one.
async fn redrive(queues: &SqsQueues, spec: &QueueSpec, url: &str) -> Result<Option<String>, Fault> {
    let Some((dead, receives)) = &spec.dead_letters else {
        let earlier = attribute(queues, url, QueueAttributeName::RedrivePolicy).await?;
        return Ok(earlier.filter(|policy| !policy.is_empty()).map(|_| String::new()));
    };
    let address = queues.address(dead).await?;
    let arn = attribute(queues, &address.url, QueueAttributeName::QueueArn).await?;
    let arn = arn.ok_or_else(|| nothing_said("a queue's ARN"))?;
    let policy = serde_json::json!({ "deadLetterTargetArn": arn, "maxReceiveCount": receives });
    Ok(Some(policy.to_string()))
}

/// One attribute of a queue, if it has it.
async fn attribute(
    queues: &SqsQueues,
    url: &str,
    name: QueueAttributeName,
) -> Result<Option<String>, Fault> {
    let call = queues.client.get_queue_attributes().queue_url(url).attribute_names(name.clone());
    let answer = call.send().await.map_err(|error| judge(&error).fault())?;
    Ok(answer.attributes.and_then(|mut found| found.remove(&name)))
}
