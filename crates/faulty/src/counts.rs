//! Counts and a log of a proxy's calls, by caller and operation, with the fields of the last forms.
//!
//! Not here: the answers (the caller has them).

use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use hyper::body::Bytes;

use crate::call::Head;
use crate::fault::Fault;
use crate::form;
use crate::real::now;

/// The most logged calls; further ones are only counted, so that a benchmark does not fill the
/// memory.
const LOG_CALLS_MAX: usize = 100_000;
/// The most forms; each further one replaces the oldest.
const FORMS_MAX: usize = 1_000;

/// One call as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The last part of `X-Amz-Target`, or the `Action` of a form; `-` without one.
    pub operation: String,
    /// The access key id of the caller; `-` without one.
    pub group: String,
    /// The partition key of the one item that a call of DynamoDB is about, where that is `pk`.
    pub item: Option<String>,
    /// The fault that it met.
    pub fault: Option<Fault>,
    /// Whether the proxy sent it to the target.
    pub forwarded: bool,
    /// When all of it had arrived.
    pub begin: Instant,
    /// When the proxy answered or cut the connection, or the caller went away; `None` until then.
    pub end: Option<Instant>,
}

/// The number of calls, of one operation or several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that arrived.
    pub arrived: u64,
    /// Calls that the proxy sent to the target.
    pub forwarded: u64,
    /// Calls that the target did not answer; the proxy answered them with 502.
    pub unanswered: u64,
    /// Calls by the fault that they met.
    pub faults: BTreeMap<Fault, u64>,
}

impl Tally {
    /// Calls that met this fault.
    pub fn of(&self, fault: Fault) -> u64 {
        self.faults.get(&fault).copied().unwrap_or_default()
    }

    fn add(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.forwarded += other.forwarded;
        self.unanswered += other.unanswered;
        for (fault, count) in &other.faults {
            *self.faults.entry(*fault).or_default() += count;
        }
    }
}

/// The calls of a proxy up to now.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By group, then operation.
    tallies: BTreeMap<String, BTreeMap<String, Tally>>,
    log: Vec<Call>,
    unlogged: u64,
    /// The last forms, with their operations.
    forms: VecDeque<(String, Bytes)>,
}

impl Counts {
    /// All calls.
    pub fn total(&self) -> Tally {
        self.sum(|_, _| true)
    }

    /// The calls of one operation, by all callers.
    pub fn operation(&self, operation: &str) -> Tally {
        self.sum(|_, name| name == operation)
    }

    /// The calls by one access key id, of any operation.
    pub fn group(&self, group: &str) -> Tally {
        self.sum(|name, _| name == group)
    }

    /// Each operation by each group: `(group, operation, tally)`, in the order of their names.
    pub fn each(&self) -> impl Iterator<Item = (&str, &str, &Tally)> {
        self.tallies.iter().flat_map(|(group, operations)| {
            operations.iter().map(move |(name, tally)| (group.as_str(), name.as_str(), tally))
        })
    }

    /// The calls in the order they arrived, the first hundred thousand of them.
    pub fn log(&self) -> &[Call] {
        &self.log
    }

    /// Calls that are counted but not in the log.
    pub fn unlogged(&self) -> u64 {
        self.unlogged
    }

    /// The fields, by name, of an operation's calls in a protocol with forms such as EC2's, in the
    /// order they arrived. The proxy keeps the last thousand forms of all operations together.
    pub fn forms(&self, operation: &str) -> Vec<BTreeMap<String, String>> {
        let matching = self.forms.iter().filter(|(name, _)| name == operation);
        matching.map(|(_, body)| form::fields(body)).collect()
    }

    fn sum(&self, wanted: impl Fn(&str, &str) -> bool) -> Tally {
        let mut sum = Tally::default();
        for (_, _, tally) in self.each().filter(|(group, name, _)| wanted(group, name)) {
            sum.add(tally);
        }
        sum
    }

    fn tally(&mut self, call: &Head) -> &mut Tally {
        let operations = self.tallies.entry(call.group.clone()).or_default();
        operations.entry(call.operation.clone()).or_default()
    }

    /// Counts a call that arrived; returns its index in the log, if it is logged.
    pub(crate) fn arrived(
        &mut self,
        call: &Head,
        body: &Bytes,
        fault: Option<Fault>,
    ) -> Option<usize> {
        if call.service.has_forms() {
            self.forms.push_back((call.operation.clone(), body.clone()));
            if self.forms.len() > FORMS_MAX {
                self.forms.pop_front();
            }
        }
        let tally = self.tally(call);
        tally.arrived += 1;
        if let Some(fault) = fault {
            *tally.faults.entry(fault).or_default() += 1;
        }
        if self.log.len() == LOG_CALLS_MAX {
            self.unlogged += 1;
            return None;
        }
        self.log.push(Call {
            operation: call.operation.clone(),
            group: call.group.clone(),
            item: call.item(body),
            fault,
            forwarded: false,
            begin: now(),
            end: None,
        });
        Some(self.log.len() - 1)
    }

    pub(crate) fn forwarded(&mut self, call: &Head, log_index: Option<usize>) {
        self.tally(call).forwarded += 1;
        if let Some(logged) = log_index.and_then(|log_index| self.log.get_mut(log_index)) {
            logged.forwarded = true;
        }
    }

    pub(crate) fn unanswered(&mut self, call: &Head) {
        self.tally(call).unanswered += 1;
    }

    pub(crate) fn ended(&mut self, log_index: Option<usize>) {
        if let Some(logged) = log_index.and_then(|log_index| self.log.get_mut(log_index)) {
            logged.end = Some(now());
        }
    }
}

/// The length of the longest chain of calls in which each began after the one before it had ended:
/// the number of round trips, if each call waited for the one before.
///
/// Calls that a client sends one after the other are always such a chain. Calls that it sends at
/// once may not overlap if the target is fast, and then count too: make every answer slow
/// ([`Fault::SlowAnswer`] with odds of a thousand) if the number has to be exact.
pub fn longest_chain<'a>(calls: impl IntoIterator<Item = &'a Call>) -> usize {
    let mut calls: Vec<&Call> = calls.into_iter().collect();
    // Greedy: the call that ends first leaves the most time for others; an unended call leaves
    // none.
    calls.sort_by_key(|call| (call.end.is_none(), call.end));
    let mut length = 0;
    let mut free: Option<Instant> = None;
    for call in calls {
        if free.is_some_and(|free| call.begin < free) {
            continue;
        }
        length += 1;
        let Some(end) = call.end else { break };
        free = Some(end);
    }
    length
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn calls(times: &[(u64, Option<u64>)]) -> Vec<Call> {
        let zero = now();
        let at = |millis| zero + Duration::from_millis(millis);
        let call = |(begin, end): &(u64, Option<u64>)| Call {
            operation: String::new(),
            group: String::new(),
            item: None,
            fault: None,
            forwarded: true,
            begin: at(*begin),
            end: end.map(at),
        };
        times.iter().map(call).collect()
    }

    fn chain(times: &[(u64, Option<u64>)]) -> usize {
        longest_chain(&calls(times))
    }

    #[test]
    fn a_chain_is_of_calls_that_do_not_overlap() {
        assert_eq!(chain(&[]), 0);
        assert_eq!(chain(&[(0, Some(10)), (10, Some(20)), (20, Some(30))]), 3);
        assert_eq!(chain(&[(0, Some(10)), (1, Some(11)), (2, Some(12))]), 1);
        assert_eq!(chain(&[(0, Some(100)), (1, Some(2)), (3, Some(4)), (5, Some(6))]), 3);
    }

    #[test]
    fn a_call_that_has_not_ended_is_the_last_of_its_chain() {
        assert_eq!(chain(&[(0, Some(10)), (11, None), (12, None)]), 2);
        assert_eq!(chain(&[(0, None), (11, Some(12))]), 1);
    }
}
