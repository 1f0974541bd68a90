//! Create a queue and keep its attributes as its spec says.
//!
//! Not here: a queue's name ([`crate::names`]).

use aws_sdk_sqs::types::QueueAttributeName;
use bullpen_core::ports::{Fault, QueueKind, QueueSpec};

use super::{Address, HIDDEN_MAX, SqsQueues, missing, whole_seconds};
use crate::fault::judge;
use crate::names::{self, FIFO_ENDING};

/// The longest time that SQS keeps a message.
const RETENTION_MAX: std::time::Duration = std::time::Duration::from_secs(14 * 86_400);

/// Creates the queue if it is missing, with its name and kind only: SQS would refuse other
/// attributes if another process has just created it. Then sets the attributes that differ from the
/// spec.
pub(super) async fn ensure(queues: &SqsQueues, spec: &QueueSpec) -> Result<Address, Fault> {
    let fifo = spec.kind == QueueKind::Fifo;
    let name = names::queue(&queues.stack, &spec.name);
    let name = if fifo { name + FIFO_ENDING } else { name };
    let (url, found) = if let Some(seen) = look(queues, &name).await? {
        seen
    } else {
        let url = create(queues, name, fifo).await?;
        let found = attributes(queues, &url).await?;
        (url, found)
    };
    let mut changes = changes(spec, &found);
    changes.extend(redrive(queues, spec, &found).await?);
    if !changes.is_empty() {
        let set = queues.client.set_queue_attributes().queue_url(&url);
        let set = changes.into_iter().fold(set, |set, (name, value)| set.attributes(name, value));
        set.send().await.map_err(|error| judge(&error).fault())?;
    }
    Ok(Address { url, fifo })
}

/// A queue's attributes, as SQS reports them.
#[expect(clippy::disallowed_types, reason = "the SDK's type; nothing here depends on its order")]
type Attributes = std::collections::HashMap<QueueAttributeName, String>;

/// The address and attributes of a queue, if it exists. While SQS removes a queue it still reports
/// the address, but no attributes.
async fn look(queues: &SqsQueues, name: &str) -> Result<Option<(String, Attributes)>, Fault> {
    let answer = queues.client.get_queue_url().queue_name(name).send().await;
    let url = match answer.map_err(|error| judge(&error).fault()) {
        Ok(answer) => answer.queue_url.ok_or_else(|| missing("a queue's address"))?,
        Err(Fault::NotFound) => return Ok(None),
        Err(fault) => return Err(fault),
    };
    match attributes(queues, &url).await {
        Ok(found) => Ok(Some((url, found))),
        Err(Fault::NotFound) => Ok(None),
        Err(fault) => Err(fault),
    }
}

async fn create(queues: &SqsQueues, name: String, fifo: bool) -> Result<String, Fault> {
    let create = queues.client.create_queue().queue_name(name);
    let create =
        if fifo { create.attributes(QueueAttributeName::FifoQueue, "true") } else { create };
    let created = create.send().await.map_err(|error| judge(&error).fault())?;
    created.queue_url.ok_or_else(|| missing("a queue's address"))
}

async fn attributes(queues: &SqsQueues, url: &str) -> Result<Attributes, Fault> {
    let call = queues
        .client
        .get_queue_attributes()
        .queue_url(url)
        .attribute_names(QueueAttributeName::VisibilityTimeout)
        .attribute_names(QueueAttributeName::MessageRetentionPeriod)
        .attribute_names(QueueAttributeName::RedrivePolicy);
    let answer = call.send().await.map_err(|error| judge(&error).fault())?;
    Ok(answer.attributes.unwrap_or_default())
}

/// The durations that differ from the spec.
fn changes(spec: &QueueSpec, found: &Attributes) -> Vec<(QueueAttributeName, String)> {
    let hidden = whole_seconds(spec.visibility, HIDDEN_MAX).to_string();
    let kept = whole_seconds(spec.retention, RETENTION_MAX).to_string();
    let wanted = [
        (QueueAttributeName::VisibilityTimeout, hidden),
        (QueueAttributeName::MessageRetentionPeriod, kept),
    ];
    wanted.into_iter().filter(|(name, value)| found.get(name) != Some(value)).collect()
}

/// The change of the dead-letter policy, if one is needed. An empty text removes the old policy.
async fn redrive(
    queues: &SqsQueues,
    spec: &QueueSpec,
    found: &Attributes,
) -> Result<Option<(QueueAttributeName, String)>, Fault> {
    let name = QueueAttributeName::RedrivePolicy;
    let earlier = found.get(&name).filter(|policy| !policy.is_empty());
    let Some((dead, receives)) = &spec.dead_letters else {
        return Ok(earlier.map(|_| (name, String::new())));
    };
    let address = queues.address(dead).await?;
    let call = queues.client.get_queue_attributes().queue_url(&address.url);
    let call = call.attribute_names(QueueAttributeName::QueueArn);
    let answer = call.send().await.map_err(|error| judge(&error).fault())?;
    let arn = answer.attributes.and_then(|mut found| found.remove(&QueueAttributeName::QueueArn));
    let arn = arn.ok_or_else(|| missing("a queue's ARN"))?;
    let is_current = earlier.is_some_and(|policy| is_policy(policy, &arn, *receives));
    let policy = serde_json::json!({ "deadLetterTargetArn": arn, "maxReceiveCount": receives });
    Ok((!is_current).then(|| (name, policy.to_string())))
}

/// Whether a policy has this target and count; SQS may write the count as text.
fn is_policy(policy: &str, arn: &str, receives: u32) -> bool {
    let Ok(policy) = serde_json::from_str::<serde_json::Value>(policy) else { return false };
    let count = &policy["maxReceiveCount"];
    let count = count.as_str().map_or_else(|| count.to_string(), str::to_owned);
    policy["deadLetterTargetArn"] == arn && count == receives.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_recognized_in_every_spelling_of_sqs() {
        for written in [
            r#"{"maxReceiveCount":"3","deadLetterTargetArn":"arn:a"}"#,
            r#"{"deadLetterTargetArn": "arn:a", "maxReceiveCount": 3}"#,
        ] {
            assert!(is_policy(written, "arn:a", 3), "{written}");
            assert!(!is_policy(written, "arn:a", 4) && !is_policy(written, "arn:b", 3));
        }
        assert!(!is_policy("", "arn:a", 3));
    }
}
