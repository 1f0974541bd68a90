//! What can happen to a call on the wire.
//!
//! Not here: how often (`plan`), or AWS's words for it (`answers`).

use crate::call::{Head, Service};

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Refused for its rate: `ThrottlingException` of DynamoDB, `RequestThrottled` of SQS,
    /// `RequestLimitExceeded` of EC2. It never reaches the target.
    Throttled,
    /// Refused for the capacity used: `ProvisionedThroughputExceededException` of DynamoDB,
    /// `ThrottlingException` of SQS; EC2 has no other word than for the rate. It never reaches the
    /// target.
    ThroughputExceeded,
    /// Status 500, and it never reaches the target.
    InternalError,
    /// Status 503, and it never reaches the target.
    Unavailable,
    /// The connection is reset, and the call never reaches the target.
    ResetBefore,
    /// The target answered, and the connection is closed instead of passing the answer on.
    AnswerLost,
    /// The target answered, and the connection is reset instead of passing the answer on.
    AnswerReset,
    /// The target's answer is passed on late.
    SlowAnswer,
    /// Another transaction has the item: `TransactionCanceledException` with one reason
    /// `TransactionConflict` for `TransactWriteItems`, `TransactionConflictException` for writes of
    /// one item. It never reaches the target, and befalls no other operation.
    Conflict,
}

impl Fault {
    /// Every one.
    pub const ALL: [Self; 9] = [
        Self::Throttled,
        Self::ThroughputExceeded,
        Self::InternalError,
        Self::Unavailable,
        Self::ResetBefore,
        Self::AnswerLost,
        Self::AnswerReset,
        Self::SlowAnswer,
        Self::Conflict,
    ];

    /// Whether AWS could do this to such a call. What is no call of AWS's has no faults.
    pub(crate) fn may_befall(self, call: &Head) -> bool {
        let conflicts = || call.service == Service::DynamoDb && has_conflicts(&call.operation);
        call.service != Service::None && (self != Self::Conflict || conflicts())
    }
}

/// Whether a transaction elsewhere can stop this operation.
pub(crate) fn has_conflicts(operation: &str) -> bool {
    ["DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"].contains(&operation)
}
