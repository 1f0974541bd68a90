//! The faults that can happen to a call on the wire.
//!
//! Not here: their odds (`plan`), or AWS's words for them (`answers`).

use crate::call::{Head, Service};

/// A fault that happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The proxy refuses the call for its rate: `ThrottlingException` of DynamoDB,
    /// `RequestThrottled` of SQS, `RequestLimitExceeded` of EC2. The call never reaches the target.
    Throttled,
    /// The proxy refuses the call for the capacity used: `ProvisionedThroughputExceededException`
    /// of DynamoDB, `ThrottlingException` of SQS; EC2 uses the same code as for the rate. The call
    /// never reaches the target.
    ThroughputExceeded,
    /// The proxy answers with status 500; the call never reaches the target.
    InternalError,
    /// The proxy answers with status 503; the call never reaches the target.
    Unavailable,
    /// The proxy resets the connection; the call never reaches the target.
    ResetBefore,
    /// The proxy closes the connection after the target answered, and drops the answer.
    AnswerLost,
    /// The proxy resets the connection after the target answered, and drops the answer.
    AnswerReset,
    /// The proxy passes the target's answer on late.
    SlowAnswer,
    /// Another transaction holds the item: `TransactionCanceledException` with one reason
    /// `TransactionConflict` for `TransactWriteItems`, `TransactionConflictException` for writes of
    /// one item. The call never reaches the target. Only these operations can meet it.
    Conflict,
}

impl Fault {
    /// Every fault.
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

    /// Whether this fault can happen to this call. Calls that are not for AWS meet no fault.
    pub(crate) fn may_befall(self, call: &Head) -> bool {
        let conflicts = || call.service == Service::DynamoDb && has_conflicts(&call.operation);
        call.service != Service::None && (self != Self::Conflict || conflicts())
    }
}

/// Whether another transaction can make this operation fail.
pub(crate) fn has_conflicts(operation: &str) -> bool {
    ["DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem"].contains(&operation)
}
