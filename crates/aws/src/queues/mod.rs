//! Queues in SQS, standard and FIFO.
//!
//! This module looks a queue's address up by its name ([`crate::names`]) and caches it until SQS
//! says that the queue does not exist. SQS counts in whole seconds: delays and visibility timeouts
//! are rounded up, to at most what SQS allows.
//!
//! Not here: what messages say, or who sends them.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
};
use bullpen_core::ids::{QueueName, Receipt};
use bullpen_core::limits::MESSAGES_PER_CALL_MAX;
use bullpen_core::ports::{Delivery, Depth, Fault, Outgoing, QueueSpec, Queues};

use crate::config::{CALL_TIMEOUT, timeouts};
use crate::fault::{Verdict, by_code, judge};
use crate::names::{self, FIFO_ENDING, StackName};

mod sending;
mod specs;

/// The longest time that SQS waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// The longest time that SQS hides a received message.
const HIDDEN_MAX: Duration = Duration::from_secs(12 * 3_600);
/// The most cached addresses; a stack has a queue per class.
const CACHED_MAX: usize = 4_096;
const BUILT: &str = "everything that the request needs is set";

/// The queues of one stack.
pub struct SqsQueues {
    client: Client,
    stack: StackName,
    /// The timeout of a call without a wait for messages.
    call_timeout: Duration,
    addresses: Mutex<BTreeMap<QueueName, Address>>,
}

/// The address and kind of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    url: String,
    fifo: bool,
}

impl SqsQueues {
    /// The queues of this stack.
    pub fn new(config: &SdkConfig, stack: &StackName) -> Self {
        let timeout = config.timeout_config().and_then(TimeoutConfig::operation_timeout);
        Self {
            client: Client::new(config),
            stack: stack.clone(),
            call_timeout: timeout.unwrap_or(CALL_TIMEOUT),
            addresses: Mutex::default(),
        }
    }

    /// The address of a queue. The caller does not know the queue's kind, so both names are tried.
    async fn address(&self, queue: &QueueName) -> Result<Address, Fault> {
        if let Some(cached) = self.cached(queue) {
            return Ok(cached);
        }
        let name = names::queue(&self.stack, queue);
        for (name, fifo) in [(name.clone(), false), (name + FIFO_ENDING, true)] {
            match self.client.get_queue_url().queue_name(name).send().await {
                Ok(answer) => {
                    let url = answer.queue_url.ok_or_else(|| missing("a queue's address"))?;
                    let address = Address { url, fifo };
                    self.cache(queue, address.clone());
                    return Ok(address);
                }
                Err(error) => match judge(&error).fault() {
                    Fault::NotFound => {}
                    fault => return Err(fault),
                },
            }
        }
        Err(Fault::NotFound)
    }

    fn cached(&self, queue: &QueueName) -> Option<Address> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }

    fn cache(&self, queue: &QueueName, address: Address) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= CACHED_MAX {
            addresses.clear();
        }
        addresses.insert(queue.clone(), address);
    }

    /// Drops the cached address of a deleted queue: `bullpen refresh` may recreate it as another
    /// kind.
    fn forget_if_gone(&self, queue: &QueueName, fault: Fault) -> Fault {
        if fault == Fault::NotFound {
            tracing::warn!(%queue, "QueueDoesNotExist: `bullpen refresh` creates the queue");
            self.forget(queue);
        }
        fault
    }

    fn forget(&self, queue: &QueueName) {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).remove(queue);
    }
}

fn missing(value: &str) -> Fault {
    Fault::Unclassified(format!("SQS answered without {value}"))
}

/// Rounds up to whole seconds, to at most `most`.
fn whole_seconds(wait: Duration, most: Duration) -> i32 {
    let up = u64::from(wait.subsec_nanos() > 0);
    let seconds = wait.as_secs().saturating_add(up).min(most.as_secs());
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// Whether this is SQS's error for a receipt that has expired or is invalid.
fn is_stale_receipt(code: &str, message: &str) -> bool {
    let code = code.rsplit('.').next().unwrap_or(code);
    matches!(code, "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidIdFormat")
        || (code == "InvalidParameterValue" && message.contains("ReceiptHandle"))
}

impl Queues for SqsQueues {
    async fn ensure(&self, spec: &QueueSpec) -> Result<(), Fault> {
        let address = specs::ensure(self, spec).await?;
        self.cache(&spec.name, address);
        Ok(())
    }

    async fn remove(&self, queue: &QueueName) -> Result<(), Fault> {
        let address = match self.address(queue).await {
            Err(Fault::NotFound) => return Ok(()),
            other => other?,
        };
        let answer = self.client.delete_queue().queue_url(address.url).send().await;
        match answer.map_err(|error| judge(&error).fault()) {
            Ok(_) | Err(Fault::NotFound) => {
                self.forget(queue);
                Ok(())
            }
            Err(fault) => Err(fault),
        }
    }

    async fn send(
        &self,
        queue: &QueueName,
        messages: &[Outgoing],
    ) -> Result<Vec<Result<(), Fault>>, Fault> {
        let address = self.address(queue).await?;
        let mut answers = Vec::with_capacity(messages.len());
        for batch in messages.chunks(MESSAGES_PER_CALL_MAX) {
            match sending::batch(&self.client, &address, batch).await {
                Ok(answered) => answers.extend(answered),
                // An earlier batch may have been sent, so the whole call has not failed.
                Err(fault) if !answers.is_empty() => {
                    answers.extend(batch.iter().map(|_| Err(fault.clone())));
                }
                Err(fault) => return Err(self.forget_if_gone(queue, fault)),
            }
        }
        Ok(answers)
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        wait: Duration,
    ) -> Result<Vec<Delivery>, Fault> {
        let address = self.address(queue).await?;
        let max = max.clamp(1, MESSAGES_PER_CALL_MAX);
        let longer_timeout = aws_sdk_sqs::config::Builder::new()
            .timeout_config(timeouts(self.call_timeout + wait.min(WAIT_MAX)));
        let answer = self
            .client
            .receive_message()
            .queue_url(address.url)
            .max_number_of_messages(i32::try_from(max).unwrap_or(1))
            .wait_time_seconds(whole_seconds(wait, WAIT_MAX))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .customize()
            .config_override(longer_timeout)
            .send()
            .await
            .map_err(|error| self.forget_if_gone(queue, judge(&error).fault()))?;
        answer.messages.unwrap_or_default().into_iter().map(delivery).collect()
    }

    async fn delete(&self, queue: &QueueName, receipts: &[Receipt]) -> Result<(), Fault> {
        let address = self.address(queue).await?;
        for batch in receipts.chunks(MESSAGES_PER_CALL_MAX) {
            let entries = batch.iter().enumerate().map(|(number, receipt)| {
                let entry = DeleteMessageBatchRequestEntry::builder().id(number.to_string());
                entry.receipt_handle(receipt.as_str()).build().expect(BUILT)
            });
            let call = self.client.delete_message_batch().queue_url(&address.url);
            let answer = call.set_entries(Some(entries.collect())).send().await;
            let answer =
                answer.map_err(|error| self.forget_if_gone(queue, judge(&error).fault()))?;
            for failed in answer.failed {
                let message = failed.message.unwrap_or_default();
                if !is_stale_receipt(&failed.code, &message) {
                    return Err(sending::entry_fault(&failed.code, &message, failed.sender_fault));
                }
            }
        }
        Ok(())
    }

    async fn defer(
        &self,
        queue: &QueueName,
        receipt: &Receipt,
        hidden: Duration,
    ) -> Result<(), Fault> {
        use aws_sdk_sqs::error::ProvideErrorMetadata;
        let address = self.address(queue).await?;
        let call = self
            .client
            .change_message_visibility()
            .queue_url(address.url)
            .receipt_handle(receipt.as_str())
            .visibility_timeout(whole_seconds(hidden, HIDDEN_MAX));
        match call.send().await {
            Ok(_) => Ok(()),
            Err(error)
                if is_stale_receipt(
                    error.code().unwrap_or_default(),
                    error.message().unwrap_or_default(),
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(self.forget_if_gone(queue, judge(&error).fault())),
        }
    }

    async fn depth(&self, queue: &QueueName) -> Result<Depth, Fault> {
        use QueueAttributeName::{
            ApproximateNumberOfMessages as Visible, ApproximateNumberOfMessagesDelayed as Delayed,
            ApproximateNumberOfMessagesNotVisible as InFlight,
        };
        let address = self.address(queue).await?;
        let call = self.client.get_queue_attributes().queue_url(address.url);
        let call = call.attribute_names(Visible).attribute_names(Delayed).attribute_names(InFlight);
        let answer = call.send().await;
        let answer = answer.map_err(|error| self.forget_if_gone(queue, judge(&error).fault()))?;
        let found = answer.attributes.unwrap_or_default();
        let count = |name: &QueueAttributeName| {
            let text = found.get(name).ok_or_else(|| missing("a queue's depth"))?;
            text.parse().map_err(|_| missing("a number for a queue's depth"))
        };
        Ok(Depth {
            visible: count(&Visible)?,
            delayed: count(&Delayed)?,
            in_flight: count(&InFlight)?,
        })
    }
}

fn delivery(message: Message) -> Result<Delivery, Fault> {
    let receives = message
        .attributes
        .as_ref()
        .and_then(|found| found.get(&MessageSystemAttributeName::ApproximateReceiveCount))
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| missing("a receive count"))?;
    let receipt = message.receipt_handle.ok_or_else(|| missing("a receipt"))?;
    let body = message.body.unwrap_or_default();
    Ok(Delivery { body, receipt: Receipt::new(receipt), receives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up_to_at_most_what_sqs_allows() {
        let seconds = |millis| whole_seconds(Duration::from_millis(millis), WAIT_MAX);
        assert_eq!((seconds(0), seconds(1), seconds(1_000), seconds(1_001)), (0, 1, 1, 2));
        assert_eq!(seconds(60_000), 20);
        assert_eq!(whole_seconds(Duration::MAX, HIDDEN_MAX), 43_200);
    }

    #[test]
    fn a_stale_receipt_has_several_names() {
        assert!(is_stale_receipt("ReceiptHandleIsInvalid", ""));
        assert!(is_stale_receipt("AWS.SimpleQueueService.MessageNotInflight", ""));
        let expired = "Value x for parameter ReceiptHandle is invalid. Reason: it has expired.";
        assert!(is_stale_receipt("InvalidParameterValue", expired));
        assert!(!is_stale_receipt("InvalidParameterValue", "MaxNumberOfMessages"));
        assert!(!is_stale_receipt("QueueDoesNotExist", ""));
    }
}
