//! Send a batch, and give each message its part of the answer.
//!
//! Not here: the size of a batch ([`super::SqsQueues`]).

use std::collections::BTreeMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::operation::send_message_batch::SendMessageBatchOutput;
use aws_sdk_sqs::types::SendMessageBatchRequestEntry;
use bullpen_core::ports::{Fault, Outgoing};

use super::{Address, BUILT, Verdict, by_code, judge, whole_seconds};

/// The longest time that SQS delays a message.
const DELAY_MAX: std::time::Duration = std::time::Duration::from_secs(15 * 60);

/// Sends one batch; one answer per message, in order.
pub(super) async fn batch(
    client: &Client,
    address: &Address,
    messages: &[Outgoing],
) -> Result<Vec<Result<(), Fault>>, Fault> {
    let entries: Vec<_> = messages
        .iter()
        .enumerate()
        .map(|(number, message)| entry(address, number, message))
        .collect();
    let call = client.send_message_batch().queue_url(&address.url);
    match call.set_entries(Some(entries)).send().await.map_err(|error| judge(&error)) {
        Ok(answer) => Ok(answers(messages.len(), answer)),
        // SQS may have sent them all.
        Err(Verdict::Open(how)) => {
            Ok(messages.iter().map(|_| Err(Fault::Unavailable(how.clone()))).collect())
        }
        Err(verdict) => Err(verdict.fault()),
    }
}

fn entry(address: &Address, number: usize, message: &Outgoing) -> SendMessageBatchRequestEntry {
    let entry = SendMessageBatchRequestEntry::builder().id(number.to_string());
    let entry = entry.message_body(&message.body);
    let entry = match (&message.fifo, address.fifo) {
        (Some(fifo), true) => {
            entry.message_group_id(&fifo.group).message_deduplication_id(&fifo.deduplication)
        }
        // SQS itself refuses a FIFO message without a group.
        (_, true) => entry,
        (_, false) => entry.delay_seconds(whole_seconds(message.delay, DELAY_MAX)),
    };
    entry.build().expect(BUILT)
}

/// One answer per message. SQS may have sent a message that its answer omits.
fn answers(messages: usize, answer: SendMessageBatchOutput) -> Vec<Result<(), Fault>> {
    let sent = answer.successful.into_iter().map(|sent| (sent.id, Ok(())));
    let failed = answer.failed.into_iter().map(|failed| {
        let message = failed.message.unwrap_or_default();
        (failed.id, Err(entry_fault(&failed.code, &message, failed.sender_fault)))
    });
    let mut answers: BTreeMap<String, Result<(), Fault>> = sent.chain(failed).collect();
    let omitted = || Err(Fault::unavailable("SQS did not say whether a message was sent"));
    let answer = |number: usize| answers.remove(&number.to_string()).unwrap_or_else(omitted);
    (0..messages).map(answer).collect()
}

/// The fault of one entry of a batch.
pub(super) fn entry_fault(code: &str, message: &str, ours: bool) -> Fault {
    by_code(code, message, if ours { 400 } else { 500 }).fault()
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::types::{BatchResultErrorEntry, SendMessageBatchResultEntry};

    use super::*;

    #[test]
    fn every_message_has_its_own_answer() {
        let sent = SendMessageBatchResultEntry::builder().id("2").message_id("m");
        let failed = |id: &str, code: &str, ours| {
            let failed = BatchResultErrorEntry::builder().id(id).code(code).message("why");
            failed.sender_fault(ours).build().unwrap()
        };
        let answer = SendMessageBatchOutput::builder()
            .successful(sent.md5_of_message_body("").build().unwrap())
            .failed(failed("0", "InternalError", false))
            .failed(failed("1", "InvalidMessageContents", true))
            .build()
            .unwrap();
        let answers = answers(4, answer);
        assert!(matches!(answers[0], Err(Fault::Unavailable(_))));
        let why = "InvalidMessageContents: why".to_owned();
        assert_eq!(answers[1], Err(Fault::Unclassified(why)));
        assert_eq!(answers[2], Ok(()));
        assert!(matches!(answers[3], Err(Fault::Unavailable(_))), "SQS's answer omits it");
    }
}
