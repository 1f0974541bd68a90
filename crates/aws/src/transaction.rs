//! Transactions: write several items in one call, all of them or none.
//!
//! Not here: independent writes that share calls ([`crate::batch`]), or what a failed condition
//! means.

use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::types::{CancellationReason, TransactWriteItem};
use bullpen_core::ports::Fault;
#[cfg(feature = "ledger")]
use bullpen_core::ports::Written;

use crate::fault::{Verdict, by_code, judge};
use crate::table::{Item, Table};

/// How often a contended transaction is sent at once, without a pause. The other write has ended by
/// then, unless there are many; for those the caller must slow down.
#[cfg(feature = "ledger")]
const ATTEMPTS_MAX: u32 = 8;

/// Why building a request cannot fail.
pub(crate) const BUILT: &str = "everything that the request needs is set";

/// The outcome of a transaction.
#[derive(Debug)]
pub(crate) enum Transacted {
    /// DynamoDB wrote all parts.
    Done,
    /// DynamoDB wrote nothing, because a condition failed. One entry for each part; `None` if the
    /// part's own condition held.
    Failed(Vec<Option<FailedPart>>),
}

/// A part whose condition did not hold.
#[derive(Debug)]
pub(crate) struct FailedPart {
    /// The stored item, if there is one and the part asked for it.
    #[cfg_attr(not(feature = "ledger"), expect(dead_code, reason = "only the ledger asks"))]
    pub(crate) stored: Option<Item>,
}

/// Writes all parts or none; sends a contended transaction again.
#[cfg(feature = "ledger")]
pub(crate) async fn transact(
    table: &Table,
    parts: Vec<TransactWriteItem>,
) -> Result<Transacted, Verdict> {
    let mut answer = Err(Verdict::Contended);
    for _ in 0..ATTEMPTS_MAX {
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
                Verdict::Lost => Ok(failed(reasons)),
                other => Err(other),
            }
        }
        _ => Err(judge(&error)),
    }
}

/// The verdict on a cancelled transaction. A failed condition outweighs every other reason.
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
    // Prefer a refusal to contention: contention passes, a refusal may not.
    verdicts.sort_by_key(|verdict| *verdict == Verdict::Contended);
    let unnamed = || {
        Verdict::Refused(Fault::Unclassified("a transaction was cancelled without a reason".into()))
    };
    verdicts.into_iter().next().unwrap_or_else(unnamed)
}

fn failed(reasons: &[CancellationReason]) -> Transacted {
    let part = |reason: &CancellationReason| {
        let lost = reason.code().is_some_and(|code| by_code(code, "", 400) == Verdict::Lost);
        lost.then(|| {
            let stored = reason.item().filter(|item| !item.is_empty()).cloned();
            FailedPart { stored }
        })
    };
    Transacted::Failed(reasons.iter().map(part).collect())
}

/// The answer of a transaction in which any failed condition means lost.
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
    fn a_failed_condition_outweighs_every_other_reason() {
        let mixed = reasons(&["None", "TransactionConflict", "ConditionalCheckFailed"]);
        assert_eq!(judge_reasons(&mixed), Verdict::Lost);
    }

    #[test]
    fn contention_is_retried_and_a_refusal_is_not() {
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
        let Transacted::Failed(parts) = failed(&parts) else { panic!("not failed") };
        assert!(parts[0].is_none());
        assert!(parts[1].as_ref().is_some_and(|part| part.stored.is_none()));
        let stored = parts[2].as_ref().and_then(|part| part.stored.clone()).unwrap();
        assert_eq!(stored["rev"], n(7));
    }
}
