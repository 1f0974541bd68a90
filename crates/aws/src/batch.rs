//! Writes of many different items in as few calls as possible; each write succeeds or fails by
//! itself.
//!
//! The writes are sent as transactions. A cancelled transaction says which conditions failed: those
//! writes are lost, and the others are sent again without them. Writes that are not settled after
//! two rounds, that were contended or throttled, are sent one by one.
//!
//! Not here: writes that must all land or none ([`crate::transaction`]).

use std::future::Future;

use aws_sdk_dynamodb::types::TransactWriteItem;
use bullpen_core::ports::{Fault, Written};
use futures_util::future::join_all;

use crate::fault::Verdict;
use crate::table::Table;
use crate::transaction::{Transacted, once};

/// Writes per transaction; AWS accepts a hundred. More writes make it likelier that one of them is
/// contended, and then none lands.
const PARTS_PER_CALL: usize = 50;
/// How often a transaction is sent before its writes are sent one by one.
const ROUNDS_MAX: u32 = 2;
/// Single writes in flight at once.
const ALONE_AT_ONCE: usize = 10;

/// A write, and the value it stores: a transaction returns nothing.
pub(crate) struct TransactionPart<T> {
    pub(crate) write: TransactWriteItem,
    pub(crate) stores: T,
}

/// The outcome of one write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Lost,
    /// It may have landed.
    Open,
    Refused(Fault),
    /// Not settled: it is sent alone.
    Alone,
}

/// Sends the writes that have a part in transactions, and the others by `alone`; one answer for
/// each.
pub(crate) async fn write<T, F>(
    table: &Table,
    parts: Vec<Option<TransactionPart<T>>>,
    alone: impl Fn(usize) -> F + Send + Sync,
) -> Vec<Result<Written<T>, Fault>>
where
    T: Send + Sync,
    F: Future<Output = Result<Written<T>, Fault>> + Send,
{
    let mut fates = vec![Fate::Alone; parts.len()];
    let (mut together, mut landed) = (Vec::new(), Vec::with_capacity(parts.len()));
    for (number, part) in parts.into_iter().enumerate() {
        let (write, result) = part.map(|part| (part.write, part.stores)).unzip();
        together.extend(write.map(|write| (number, write)));
        landed.push(result);
    }
    for chunk in together.chunks(PARTS_PER_CALL) {
        transact(table, chunk, &mut fates).await;
    }
    let numbers: Vec<usize> = (0..fates.len()).filter(|n| fates[*n] == Fate::Alone).collect();
    let mut singles = Vec::with_capacity(numbers.len());
    for batch in numbers.chunks(ALONE_AT_ONCE) {
        singles.extend(join_all(batch.iter().map(|number| alone(*number))).await);
    }
    let mut singles = singles.into_iter();
    let mut answer = |(fate, stored): (Fate, Option<T>)| match (fate, stored) {
        (Fate::Done, Some(stored)) => Ok(Written::Won(stored)),
        (Fate::Lost, _) => Ok(Written::Lost),
        (Fate::Refused(fault), _) => Err(fault),
        (Fate::Alone, _) => singles.next().unwrap_or(Ok(Written::Unknown)),
        (Fate::Open | Fate::Done, _) => Ok(Written::Unknown),
    };
    fates.into_iter().zip(landed).map(&mut answer).collect()
}

/// Settles as many of these writes as it can; the others stay [`Fate::Alone`].
async fn transact(table: &Table, chunk: &[(usize, TransactWriteItem)], fates: &mut [Fate]) {
    let mut left: Vec<&(usize, TransactWriteItem)> = chunk.iter().collect();
    for _ in 0..ROUNDS_MAX {
        // A single write costs half as much outside a transaction.
        if left.len() < 2 {
            return;
        }
        let writes = left.iter().map(|(_, write)| write.clone()).collect();
        let answer = once(table, writes).await;
        if let Ok(Transacted::Failed(failed)) = answer {
            let mut failed = failed.into_iter().map(|part| part.is_some());
            left.retain(|(number, _)| {
                let lost = failed.next().unwrap_or(false);
                if lost {
                    fates[*number] = Fate::Lost;
                }
                !lost
            });
            continue;
        }
        let fate = fate_of_all(answer);
        for (number, _) in left {
            fates[*number] = fate.clone();
        }
        return;
    }
}

/// The outcome of every write of a transaction that no failed condition cancelled.
fn fate_of_all(answer: Result<Transacted, Verdict>) -> Fate {
    match answer {
        Ok(Transacted::Done) => Fate::Done,
        Err(Verdict::Open(how)) => {
            tracing::debug!(how, "outcome of transaction unknown");
            Fate::Open
        }
        // One write may have caused it; sent alone, each gets its own answer.
        Ok(Transacted::Failed(_))
        | Err(
            Verdict::Lost
            | Verdict::Contended
            | Verdict::Refused(Fault::Throttled | Fault::Unclassified(_)),
        ) => Fate::Alone,
        Err(Verdict::Refused(fault)) => Fate::Refused(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unanswered_transaction_leaves_every_write_open_and_a_denied_one_none() {
        assert_eq!(fate_of_all(Ok(Transacted::Done)), Fate::Done);
        assert_eq!(fate_of_all(Err(Verdict::Open("late".into()))), Fate::Open);
        let denied = Fault::Denied("no".to_owned());
        assert_eq!(fate_of_all(Err(Verdict::Refused(denied.clone()))), Fate::Refused(denied));
    }

    #[test]
    fn writes_are_sent_alone_if_one_of_them_may_have_caused_the_failure() {
        let odd = Fault::Unclassified("ValidationException".to_owned());
        for verdict in
            [Verdict::Contended, Verdict::Refused(Fault::Throttled), Verdict::Refused(odd)]
        {
            assert_eq!(fate_of_all(Err(verdict.clone())), Fate::Alone, "{verdict:?}");
        }
    }
}
