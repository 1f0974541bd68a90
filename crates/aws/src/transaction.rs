//! Transactions: several items in one call, all of them or none.
//!
//! Not here: writes that only go together ([`crate::batch`]), or what a failed condition means.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use bullpen_core::ports::Fault;
#[cfg(feature = "ledger")]
use bullpen_core::ports::Written;

use crate::fault::{Verdict, by_code, judge};
use crate::table::{Stored, Table};

/// How often a transaction that met another is tried again at once. The other is over by then,
/// unless many meet; that is for the caller to slow down for.
#[cfg(feature = "ledger")]
const MEETINGS_MAX: u32 = 8;

/// Why building a request cannot fail.
pub(crate) const BUILT: &str = "everything that the request needs is set";

/// How a transaction went.
#[derive(Debug)]
pub(crate) enum Transacted {
    /// All of it was done.
    Done,
    /// Nothing was, because these parts' conditions did not hold: for each part none if its own did,
    /// else the item as it was, if there was one.
    Failed(Vec<Option<FailedPart>>),
}

/// A part whose condition did not hold.
#[derive(Debug)]
pub(crate) struct FailedPart {
    /// What was there instead, if the part asked to be told.
    #[cfg_attr(not(feature = "ledger"), expect(dead_code, reason = "only the ledger asks"))]
    pub(crate) stored: Option<Stored>,
}

/// Writes all parts or none. One that meets another write is tried again.
#[cfg(feature = "ledger")]
pub(crate) async fn transact(
    table: &Table,
    parts: Vec<TransactWriteItem>,
) -> Result<Transacted, Verdict> {
    let mut answer = Err(Verdict::Contended);
    for _ in 0..MEETINGS_MAX {
        answer = once(table, parts.clone()).await;
        if !matches!(answer, Err(Verdict::Contended)) {
            break;
        }
    }
    answer
}

/// Writes all parts or none, in one call.
pub(crate) async fn once(
    table: &Table,
    parts: Vec<TransactWriteItem>,
) -> Result<Transacted, Verdict> {
    let call = table.client.transact_write_items().set_transact_items(Some(parts));
    let Err(error) = call.send().await else { return Ok(Transacted::Done) };
    match error.as_service_error() {
        Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
            let reasons = cancelled.cancellation_reasons();
            match judge_reasons(reasons) {
                Verdict::Lost => failed(reasons),
                other => Err(other),
            }
        }
        _ => Err(judge(&error)),
    }
}

/// What a cancelled transaction means: a condition that failed is the answer, whatever else was in
/// the way.
fn judge_reasons(reasons: &[CancellationReason]) -> Verdict {
    const NO_REASON: &str = "None";
    const REQUEST_ERROR: u16 = 400;
    let mut verdicts = reasons
        .iter()
        .filter_map(|reason| Some((reason.code()?, reason.message().unwrap_or_default())))
        .filter(|(code, _)| *code != NO_REASON)
        .map(|(code, message)| by_code(code, message, REQUEST_ERROR))
        .collect::<Vec<_>>();
    if verdicts.contains(&Verdict::Lost) {
        return Verdict::Lost;
    }
    // A refusal that stays is worth more than one that passes.
    verdicts.sort_by_key(|verdict| *verdict == Verdict::Contended);
    let unnamed = || {
        Verdict::Refused(Fault::Unclassified("a transaction was cancelled without a reason".into()))
    };
    verdicts.into_iter().next().unwrap_or_else(unnamed)
}

fn failed(reasons: &[CancellationReason]) -> Result<Transacted, Verdict> {
    let part = |reason: &CancellationReason| {
        let lost = reason.code().is_some_and(|code| by_code(code, "", 400) == Verdict::Lost);
        lost.then(|| {
            let stored = reason.item().filter(|item| !item.is_empty()).cloned();
            stored.map(Stored::new).transpose().map(|stored| FailedPart { stored })
        })
        .transpose()
    };
    let parts: Result<Vec<_>, Fault> = reasons.iter().map(part).collect();
    parts.map(Transacted::Failed).map_err(Verdict::Refused)
}

/// A transaction's answer where a failed condition means that it lost.
#[cfg(feature = "ledger")]
pub(crate) fn written(transacted: Result<Transacted, Verdict>) -> Result<Written<()>, Fault> {
    match transacted {
        Ok(Transacted::Done) => Ok(Written::Won(())),
        Ok(Transacted::Failed(_)) => Ok(Written::Lost),
        Err(verdict) => verdict.written(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::n;

    fn reasons(codes: &[&str]) -> Vec<CancellationReason> {
        codes.iter().map(|code| CancellationReason::builder().code(*code).build()).collect()
    }

    #[test]
    fn a_failed_condition_is_the_answer_whatever_else_was_in_the_way() {
        let mixed = reasons(&["None", "TransactionConflict", "ConditionalCheckFailed"]);
        assert_eq!(judge_reasons(&mixed), Verdict::Lost);
    }

    #[test]
    fn a_meeting_is_tried_again_and_a_refusal_is_not() {
        assert_eq!(judge_reasons(&reasons(&["TransactionConflict"])), Verdict::Contended);
        let both = reasons(&["TransactionConflict", "ThrottlingError"]);
        assert_eq!(judge_reasons(&both), Verdict::Refused(Fault::Throttled));
        let odd = judge_reasons(&reasons(&["None", "ValidationError"]));
        assert_eq!(odd, Verdict::Refused(Fault::Unclassified("ValidationError".into())));
        assert!(matches!(judge_reasons(&[]), Verdict::Refused(Fault::Unclassified(_))));
    }

    #[test]
    fn each_part_says_whether_it_failed() {
        let stored = CancellationReason::builder()
            .code("ConditionalCheckFailed")
            .item("v", n(1))
            .item("rev", n(7))
            .build();
        let mut parts = reasons(&["None", "ConditionalCheckFailed"]);
        parts.push(stored);
        let Ok(Transacted::Failed(parts)) = failed(&parts) else { panic!("not failed") };
        assert!(parts[0].is_none());
        assert!(parts[1].as_ref().is_some_and(|part| part.stored.is_none()));
        let there = parts[2].as_ref().and_then(|part| part.stored.as_ref()).unwrap();
        assert_eq!(there.number::<u64>("rev"), Ok(7));
    }
}
