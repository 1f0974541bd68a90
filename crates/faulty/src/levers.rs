//! The fault of the next call: from a *lever*, a single fault that a test asked for, or from the
//! plan.
//!
//! Not here: performing the fault (`wire`).

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::call::Head;
use crate::dice::Dice;
use crate::fault::Fault;
use crate::plan::Plan;

/// More levers than this for one operation are a mistake in a test.
const LEVERS_MAX: usize = 1_000;

/// The fault of one call and its random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) fault: Option<Fault>,
    /// The delay if the fault is a slow answer.
    pub(crate) delay: Duration,
    /// A random number for the fault's details.
    pub(crate) draw: u64,
}

/// The plan, and the levers that take precedence over it.
#[derive(Debug)]
pub(crate) struct Levers {
    plan: Plan,
    /// Random streams by group and operation.
    streams: BTreeMap<(String, String), Dice>,
    /// Levers for an operation's next calls; `None` lets a call pass without a fault.
    pulled: BTreeMap<String, VecDeque<Option<Fault>>>,
}

impl Levers {
    pub(crate) fn new(plan: Plan) -> Self {
        Self { plan, streams: BTreeMap::new(), pulled: BTreeMap::new() }
    }

    /// Starts another plan from its beginning; levers stay pulled.
    pub(crate) fn set(&mut self, plan: Plan) {
        self.plan = plan;
        self.streams.clear();
    }

    pub(crate) fn pull(&mut self, operation: &str, fault: Option<Fault>) {
        let pulled = self.pulled.entry(operation.to_owned()).or_default();
        assert!(pulled.len() < LEVERS_MAX, "more than {LEVERS_MAX} levers for {operation}");
        pulled.push_back(fault);
    }

    /// The number of levers that no call has met yet.
    pub(crate) fn left(&self) -> usize {
        self.pulled.values().map(VecDeque::len).sum()
    }

    pub(crate) fn fate(&mut self, call: &Head) -> Fate {
        let key = (call.group.clone(), call.operation.clone());
        let seed = self.plan.seed();
        let stream = || Dice::new(seed, &format!("{} {}", call.group, call.operation));
        let dice = self.streams.entry(key).or_insert_with(stream);
        // Always two draws, so that the n-th call's do not depend on the faults of earlier calls.
        let (first, second) = (dice.draw(), dice.draw());
        let pulled = self.pulled.get_mut(&call.operation).and_then(VecDeque::pop_front);
        Fate {
            fault: pulled.unwrap_or_else(|| self.plan.fault(call, first)),
            delay: self.plan.delay(second),
            draw: second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Service;

    fn call(group: &str) -> Head {
        Head {
            service: Service::DynamoDb,
            operation: "PutItem".to_owned(),
            group: group.to_owned(),
        }
    }

    fn plan() -> Plan {
        Plan::seeded(7).with(Fault::Throttled, 300).with(Fault::AnswerLost, 300)
    }

    #[test]
    fn the_nth_call_of_a_caller_does_not_depend_on_other_callers() {
        let mut alone = Levers::new(plan());
        let mut shared = Levers::new(plan());
        for _ in 0..50 {
            shared.fate(&call("other"));
            assert_eq!(alone.fate(&call("one")), shared.fate(&call("one")));
        }
    }

    #[test]
    fn levers_precede_the_plan_in_order_and_change_no_later_draw() {
        let mut plain = Levers::new(plan());
        let mut pulled = Levers::new(plan());
        pulled.pull("PutItem", None);
        pulled.pull("PutItem", Some(Fault::Conflict));
        assert_eq!(pulled.left(), 2);
        assert_eq!(pulled.fate(&call("one")).fault, None);
        assert_eq!(pulled.fate(&call("one")).fault, Some(Fault::Conflict));
        assert_eq!(pulled.left(), 0);
        for _ in 0..2 {
            plain.fate(&call("one"));
        }
        for _ in 0..50 {
            assert_eq!(plain.fate(&call("one")), pulled.fate(&call("one")));
        }
    }
}
