//! The seed and the odds of faults.
//!
//! Not here: single faults that a test asks for (`levers`).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::call::Head;
use crate::fault::Fault;

/// Odds are given out of this many calls.
const PER_MILLE: u64 = 1_000;
/// The default delay of a slow answer: longer than a local call takes, shorter than a client waits.
const SLOW_DEFAULT: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(200));
/// The longest delay of an answer: a longer one would test the test's own timeout.
const SLOW_MAX: Duration = Duration::from_secs(10);

/// The seed and the odds of faults.
///
/// The n-th call of an operation by a group meets the same fault under the same plan, independent
/// of the calls between: tests with concurrent callers stay as repeatable as possible.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    rules: Vec<Rule>,
    slow: (Duration, Duration),
}

#[derive(Clone, Debug)]
struct Rule {
    fault: Fault,
    per_mille: u32,
    /// The operations that can meet the fault; `None` is every operation.
    operations: Option<BTreeSet<String>>,
}

impl Plan {
    /// No faults.
    pub fn calm() -> Self {
        Self::seeded(0)
    }

    /// A plan with this seed and no faults; [`Plan::with`] adds them.
    pub fn seeded(seed: u64) -> Self {
        Self { seed, rules: Vec::new(), slow: SLOW_DEFAULT }
    }

    /// Makes so many calls out of a thousand meet this fault, of every operation that can meet it.
    ///
    /// A call meets at most one fault; if the odds of all faults exceed a thousand together, the
    /// last faults happen less often, or never.
    #[must_use]
    pub fn with(mut self, fault: Fault, per_mille: u32) -> Self {
        self.rules.push(Rule { fault, per_mille, operations: None });
        self
    }

    /// As [`Plan::with`], for these operations only.
    #[must_use]
    pub fn with_on(mut self, fault: Fault, per_mille: u32, operations: &[&str]) -> Self {
        let operations = operations.iter().map(|&name| name.to_owned()).collect();
        self.rules.push(Rule { fault, per_mille, operations: Some(operations) });
        self
    }

    /// Sets the delay of slow answers, to at most ten seconds.
    #[must_use]
    pub fn slow_between(mut self, least: Duration, most: Duration) -> Self {
        self.slow = (least.min(SLOW_MAX), most.min(SLOW_MAX));
        self
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// The fault that this random number gives a call.
    pub(crate) fn fault(&self, call: &Head, draw: u64) -> Option<Fault> {
        let mut left = draw % PER_MILLE;
        for rule in self.rules.iter().filter(|rule| rule.is_about(call)) {
            match left.checked_sub(u64::from(rule.per_mille)) {
                None => return Some(rule.fault),
                Some(rest) => left = rest,
            }
        }
        None
    }

    /// The delay of a slow answer that this random number gives, in whole milliseconds.
    pub(crate) fn delay(&self, draw: u64) -> Duration {
        let (least, most) = self.slow;
        let span = u64::try_from(most.saturating_sub(least).as_millis()).unwrap_or(u64::MAX);
        least + Duration::from_millis(draw % span.saturating_add(1))
    }
}

impl Rule {
    fn is_about(&self, call: &Head) -> bool {
        let named = self.operations.as_ref().is_none_or(|names| names.contains(&call.operation));
        named && self.fault.may_befall(call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Service;

    fn call(service: Service, operation: &str) -> Head {
        Head { service, operation: operation.to_owned(), group: "-".to_owned() }
    }

    #[test]
    fn faults_divide_the_thousand_in_their_order() {
        let plan = Plan::calm().with(Fault::Throttled, 10).with(Fault::AnswerLost, 5);
        let put = call(Service::DynamoDb, "PutItem");
        assert_eq!(plan.fault(&put, 9), Some(Fault::Throttled));
        assert_eq!(plan.fault(&put, 14), Some(Fault::AnswerLost));
        assert_eq!(plan.fault(&put, 15), None);
        assert_eq!(plan.fault(&put, 1_009), Some(Fault::Throttled));
    }

    #[test]
    fn a_rule_is_about_its_operations_only() {
        let plan = Plan::calm().with_on(Fault::Throttled, 1_000, &["PutItem"]);
        assert_eq!(plan.fault(&call(Service::DynamoDb, "PutItem"), 0), Some(Fault::Throttled));
        assert_eq!(plan.fault(&call(Service::DynamoDb, "GetItem"), 0), None);
    }

    #[test]
    fn only_writes_of_dynamodb_meet_conflicts_and_an_emulators_own_calls_meet_no_fault() {
        let conflict = Plan::calm().with(Fault::Conflict, 1_000);
        let of = |service, operation| conflict.fault(&call(service, operation), 0);
        assert_eq!(of(Service::DynamoDb, "TransactWriteItems"), Some(Fault::Conflict));
        assert_eq!(of(Service::DynamoDb, "GetItem"), None);
        assert_eq!(of(Service::Sqs, "SendMessage"), None);
        let reset = Plan::calm().with(Fault::ResetBefore, 1_000);
        assert_eq!(reset.fault(&call(Service::None, "-"), 0), None);
    }

    #[test]
    fn a_delay_is_within_its_bounds() {
        let plan = Plan::calm().slow_between(Duration::from_millis(5), Duration::from_millis(7));
        let delays: BTreeSet<Duration> = (0..100).map(|draw| plan.delay(draw)).collect();
        assert_eq!(delays, [5, 6, 7].map(Duration::from_millis).into());
        let hours = Plan::calm().slow_between(Duration::ZERO, Duration::from_secs(7_200));
        assert!((0..20_000).all(|draw| hours.delay(draw * 7) <= SLOW_MAX));
    }
}
