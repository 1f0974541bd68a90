//! Queues in SQS, standard and FIFO.
//!
//! A queue is found by its name ([`crate::names`]); the address that SQS knows it by is asked for
//! once and remembered until it turns out to be gone. SQS counts in whole seconds: what is to be
//! hidden is hidden for the next whole second, and no longer than SQS allows.
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

/// The longest that SQS waits for a message.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// The longest that SQS hides a received message.
const HIDDEN_MAX: Duration = Duration::from_secs(12 * 3_600);
/// Addresses that are remembered; a stack has a queue per class.
const REMEMBERED_MAX: usize = 4_096;
const BUILT: &str = "everything that the request needs is set";

/// The queues of one stack.
pub struct SqsQueues {
    client: Client,
    stack: StackName,
    /// How long a call may take that does not wait for anything.
    patience: Duration,
    found: Mutex<BTreeMap<QueueName, Address>>,
}

/// Where a queue is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Address {
    url: String,
    fifo: bool,
}

impl SqsQueues {
    /// The queues of this stack.
    pub fn new(config: &SdkConfig, stack: &StackName) -> Self {
        let patience = config.timeout_config().and_then(TimeoutConfig::operation_timeout);
        Self {
            client: Client::new(config),
            stack: stack.clone(),
            patience: patience.unwrap_or(CALL_TIMEOUT),
            found: Mutex::default(),
        }
    }

    /// Where a queue is. A caller knows its name and not its kind, so both spellings are tried.
    async fn address(&self, queue: &QueueName) -> Result<Address, Fault> {
        if let Some(known) = self.remembered(queue) {
            return Ok(known);
        }
        let name = names::queue(&self.stack, queue);
        for (spelling, fifo) in [(name.clone(), false), (name + FIFO_ENDING, true)] {
            match self.client.get_queue_url().queue_name(spelling).send().await {
                Ok(answer) => {
                    let url = answer.queue_url.ok_or_else(|| nothing_said("a queue's address"))?;
                    let address = Address { url, fifo };
                    self.remember(queue, address.clone());
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

    fn remembered(&self, queue: &QueueName) -> Option<Address> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get(queue).cloned()
    }

    fn remember(&self, queue: &QueueName, address: Address) {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= REMEMBERED_MAX {
            found.clear();
        }
        found.insert(queue.clone(), address);
    }

    /// A queue that is gone may come back as another kind, so its address is forgotten.
    fn forget_if_gone(&self, queue: &QueueName, fault: Fault) -> Fault {
        if fault == Fault::NotFound {
            tracing::warn!(%queue, "QueueDoesNotExist: it is gone; `bullpen refresh` makes it again");
            self.forget(queue);
        }
        fault
    }

    fn forget(&self, queue: &QueueName) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).remove(queue);
    }
}

fn nothing_said(about: &str) -> Fault {
    Fault::Unclassified(format!("SQS answered without {about}"))
}

/// Whole seconds, never less than asked for, up to what SQS allows.
fn whole_seconds(wait: Duration, most: Duration) -> i32 {
    let up = u64::from(wait.subsec_nanos() > 0);
    let seconds = wait.as_secs().saturating_add(up).min(most.as_secs());
    i32::try_from(seconds).unwrap_or(i32::MAX)
}

/// Whether this is what SQS says to a receipt that is no good any more, or never was.
fn is_stale_receipt(code: &str, message: &str) -> bool {
    let code = code.rsplit('.').next().unwrap_or(code);
    matches!(code, "ReceiptHandleIsInvalid" | "MessageNotInflight" | "InvalidIdFormat")
        || (code == "InvalidParameterValue" && message.contains("ReceiptHandle"))
}

impl Queues for SqsQueues {
    async fn ensure(&self, spec: &QueueSpec) -> Result<(), Fault> {
        let address = specs::ensure(self, spec).await?;
        self.remember(&spec.name, address);
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
                // Some of an earlier batch may have been sent, so this is not "none was sent".
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
        let with_patience = aws_sdk_sqs::config::Builder::new()
            .timeout_config(timeouts(self.patience + wait.min(WAIT_MAX)));
        let answer = self
            .client
            .receive_message()
            .queue_url(address.url)
            .max_number_of_messages(i32::try_from(max).unwrap_or(1))
            .wait_time_seconds(whole_seconds(wait, WAIT_MAX))
            .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
            .customize()
            .config_override(with_patience)
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
                let said = failed.message.unwrap_or_default();
                if !is_stale_receipt(&failed.code, &said) {
                    return Err(sending::entry_fault(&failed.code, &said, failed.sender_fault));
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
            let text = found.get(name).ok_or_else(|| nothing_said("a queue's depth"))?;
            text.parse().map_err(|_| nothing_said("a number for a queue's depth"))
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
        .ok_or_else(|| nothing_said("a receive count"))?;
    let receipt = message.receipt_handle.ok_or_else(|| nothing_said("a receipt"))?;
    let body = message.body.unwrap_or_default();
    Ok(Delivery { body, receipt: Receipt::new(receipt), receives })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up_and_held_to_what_sqs_allows() {
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
