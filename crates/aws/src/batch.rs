//! Many writes of different items in as few calls as can be, each won or lost for itself.
//!
//! They go together as transactions. One that is cancelled says which conditions failed: those
//! writes are lost, and the others go again without them. What that does not settle in two rounds,
//! and what met another write or was throttled, is written one by one.
//!
//! Not here: writes that must all land or none ([`crate::transaction`]).

use std::future::Future;

use aws_sdk_dynamodb::types::TransactWriteItem;
use bullpen_core::ports::{Fault, Written};
use futures_util::future::join_all;

use crate::fault::Verdict;
use crate::table::Table;
use crate::transaction::{Transacted, once};

/// Writes per transaction; AWS takes a hundred. The more there are, the likelier one of them is
/// contended, and then none lands.
const PARTS_PER_CALL: usize = 50;
/// How often a transaction is sent before its writes go one by one.
const ROUNDS_MAX: u32 = 2;
/// Single writes under way at once.
const ALONE_AT_ONCE: usize = 10;

/// A write, and what is stored once it has landed: a transaction returns nothing.
pub(crate) struct TransactionPart<T> {
    pub(crate) write: TransactWriteItem,
    pub(crate) stores: T,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Lost,
    /// It may have been done.
    Open,
    Refused(Fault),
    /// Nothing yet: it goes by itself.
    Alone,
}

/// Writes all that have a part together, and the others by `alone`; one answer for each.
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
    for some in numbers.chunks(ALONE_AT_ONCE) {
        singles.extend(join_all(some.iter().map(|number| alone(*number))).await);
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

/// Settles what it can of these writes; the rest stays [`Fate::Alone`].
async fn transact(table: &Table, chunk: &[(usize, TransactWriteItem)], fates: &mut [Fate]) {
    let mut left: Vec<&(usize, TransactWriteItem)> = chunk.iter().collect();
    for _ in 0..ROUNDS_MAX {
        // One alone costs half of what it costs in a transaction.
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

/// What became of every write of a transaction whose conditions were not what failed.
fn fate_of_all(answer: Result<Transacted, Verdict>) -> Fate {
    match answer {
        Ok(Transacted::Done) => Fate::Done,
        Err(Verdict::Open(how)) => {
            tracing::debug!(how, "a transaction is open");
            Fate::Open
        }
        // It may be one of them only; by itself each gets its own answer.
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
    fn an_unanswered_transaction_leaves_everything_open_and_a_denied_one_nothing() {
        assert_eq!(fate_of_all(Ok(Transacted::Done)), Fate::Done);
        assert_eq!(fate_of_all(Err(Verdict::Open("late".into()))), Fate::Open);
        let denied = Fault::Denied("no".to_owned());
        assert_eq!(fate_of_all(Err(Verdict::Refused(denied.clone()))), Fate::Refused(denied));
    }

    #[test]
    fn what_one_of_them_may_have_caused_is_tried_one_by_one() {
        let odd = Fault::Unclassified("ValidationException".to_owned());
        for verdict in
            [Verdict::Contended, Verdict::Refused(Fault::Throttled), Verdict::Refused(odd)]
        {
            assert_eq!(fate_of_all(Err(verdict.clone())), Fate::Alone, "{verdict:?}");
        }
    }
}
