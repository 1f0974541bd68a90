//! Translate failed AWS calls into the ports' words.
//!
//! [`TABLE`] is the only table of AWS's error codes. A failed call gets a [`Verdict`]: its
//! condition did not hold, it certainly did nothing, or the outcome is unknown. The outcome is
//! unknown if the call timed out, its answer broke off, or AWS reports an error of its own.
//!
//! Not here: retries (the engine's, and [`crate::transaction`]'s for contended writes).

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use bullpen_core::ports::Fault;
#[cfg(feature = "mailbox")]
use bullpen_core::ports::Written;

/// The outcome of a failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The condition did not hold.
    Lost,
    /// Another write to the same item was under way; the call did nothing.
    Contended,
    /// The call did nothing.
    Refused(Fault),
    /// The call may have taken effect; the text says why it is unknown.
    Open(String),
}

impl Verdict {
    /// The answer of a conditional write.
    #[cfg(feature = "mailbox")]
    pub(crate) fn written<T>(self) -> Result<Written<T>, Fault> {
        match self {
            Self::Lost => Ok(Written::Lost),
            Self::Contended => Err(Fault::Throttled),
            Self::Refused(fault) => Err(fault),
            Self::Open(how) => {
                tracing::debug!(how, "outcome of write unknown");
                Ok(Written::Unknown)
            }
        }
    }

    /// The fault of a call without a condition.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Lost => Fault::Unclassified("a condition failed, but none was set".to_owned()),
            Self::Contended => Fault::Throttled,
            Self::Refused(fault) => fault,
            Self::Open(how) => Fault::Unavailable(how),
        }
    }
}

/// The meaning of an error code.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Lost,
    Contended,
    Throttled,
    NotFound,
    /// Refused for a while.
    Later,
    /// Refused until an operator follows this hint.
    Denied(&'static str),
    /// AWS failed; the call may have taken effect.
    Open,
}

const CREDENTIALS: &str =
    "check the AWS credentials, for example with `aws sts get-caller-identity`";
const SIGNATURE: &str = "the AWS credentials or the region are wrong: check both, for example with \
     `aws sts get-caller-identity`";
const CLOCK: &str = "the clock of this machine is wrong";
const EXPIRED: &str = "the AWS login has expired: log in again";
const POLICY: &str = "the AWS policy of this role does not allow it";
const PLACE: &str = "check the AWS region and the network";
const REGION: &str = "this AWS account may not use this region";
const TABLES: &str =
    "a table of the stack is missing: check stack and region, or run `bullpen refresh`";
const IMAGE: &str = "correct the image under [images] of bullpen.toml, or in runs-on.yml";
pub(crate) const PLACES: &str =
    "correct `subnets` and `security-groups` under [aws] of bullpen.toml";
const ACCOUNT: &str = "AWS does not let this account launch; AWS support can say why";
const SERVICE_ROLE: &str = "the first launch of an account makes roles of EC2's own: let this role do \
     that, as `bullpen policies` says, or run `aws iam create-service-linked-role` for \
     spot.amazonaws.com and ec2fleet.amazonaws.com";
const TOO_LARGE: &str = "a shard of the ledger's table is full";

/// AWS's error codes. SQS may put a prefix before a code; `by_code` cuts it off if it does not know
/// the whole.
const TABLE: &[(&str, Meaning)] = &[
    ("ConditionalCheckFailed", Meaning::Lost),
    ("ConditionalCheckFailedException", Meaning::Lost),
    ("ReplicatedWriteConflictException", Meaning::Contended),
    ("TransactionConflict", Meaning::Contended),
    ("TransactionConflictException", Meaning::Contended),
    ("TransactionInProgressException", Meaning::Contended),
    ("KmsThrottled", Meaning::Throttled),
    ("LimitExceededException", Meaning::Throttled),
    ("OverLimit", Meaning::Throttled),
    ("ProvisionedThroughputExceeded", Meaning::Throttled),
    ("ProvisionedThroughputExceededException", Meaning::Throttled),
    ("RequestLimitExceeded", Meaning::Throttled),
    ("RequestThrottled", Meaning::Throttled),
    ("RequestThrottledException", Meaning::Throttled),
    ("SlowDown", Meaning::Throttled),
    ("Throttling", Meaning::Throttled),
    ("ThrottlingError", Meaning::Throttled),
    ("ThrottlingException", Meaning::Throttled),
    ("TooManyRequestsException", Meaning::Throttled),
    ("NonExistentQueue", Meaning::NotFound),
    ("QueueDoesNotExist", Meaning::NotFound),
    ("QueueDeletedRecently", Meaning::Later),
    ("AccessDenied", Meaning::Denied(POLICY)),
    ("AccessDeniedException", Meaning::Denied(POLICY)),
    ("KmsAccessDenied", Meaning::Denied(POLICY)),
    ("ServiceLinkedRoleCreationNotPermitted", Meaning::Denied(SERVICE_ROLE)),
    ("ExpiredToken", Meaning::Denied(EXPIRED)),
    ("ExpiredTokenException", Meaning::Denied(EXPIRED)),
    ("RequestExpired", Meaning::Denied(EXPIRED)),
    ("RequestInTheFuture", Meaning::Denied(CLOCK)),
    ("RequestTimeTooSkewed", Meaning::Denied(CLOCK)),
    ("IncompleteSignature", Meaning::Denied(SIGNATURE)),
    ("InvalidAccessKeyId", Meaning::Denied(CREDENTIALS)),
    ("InvalidClientTokenId", Meaning::Denied(CREDENTIALS)),
    ("InvalidSecurity", Meaning::Denied(CREDENTIALS)),
    ("InvalidSignatureException", Meaning::Denied(SIGNATURE)),
    ("MissingAuthenticationToken", Meaning::Denied(CREDENTIALS)),
    ("MissingAuthenticationTokenException", Meaning::Denied(CREDENTIALS)),
    ("SignatureDoesNotMatch", Meaning::Denied(SIGNATURE)),
    ("UnrecognizedClientException", Meaning::Denied(CREDENTIALS)),
    ("OptInRequired", Meaning::Denied(REGION)),
    ("SubscriptionRequiredException", Meaning::Denied(REGION)),
    ("ResourceNotFoundException", Meaning::Denied(TABLES)),
    ("ItemCollectionSizeLimitExceeded", Meaning::Denied(TOO_LARGE)),
    ("ItemCollectionSizeLimitExceededException", Meaning::Denied(TOO_LARGE)),
    ("UnauthorizedOperation", Meaning::Denied(POLICY)),
    ("AuthFailure", Meaning::Denied(CREDENTIALS)),
    ("Blocked", Meaning::Denied(ACCOUNT)),
    ("PendingVerification", Meaning::Denied(ACCOUNT)),
    ("InvalidAMIID.Malformed", Meaning::Denied(IMAGE)),
    ("InvalidAMIID.NotFound", Meaning::Denied(IMAGE)),
    ("InvalidAMIID.Unavailable", Meaning::Denied(IMAGE)),
    ("InvalidGroup.NotFound", Meaning::Denied(PLACES)),
    ("InvalidGroupId.Malformed", Meaning::Denied(PLACES)),
    ("InvalidSecurityGroupID.NotFound", Meaning::Denied(PLACES)),
    ("InvalidSubnetID.NotFound", Meaning::Denied(PLACES)),
    ("InternalError", Meaning::Open),
    ("InternalFailure", Meaning::Open),
    ("InternalServerError", Meaning::Open),
    ("ServiceUnavailable", Meaning::Open),
    ("ServiceUnavailableException", Meaning::Open),
];

/// The verdict on an answer with this code. Keeps unknown codes verbatim.
pub(crate) fn by_code(code: &str, message: &str, status: u16) -> Verdict {
    const SERVER_ERRORS: u16 = 500;
    let meaning = |code: &str| TABLE.iter().find(|(known, _)| *known == code);
    let bare = code.rsplit('.').next().unwrap_or(code);
    let found = meaning(code).or_else(|| meaning(bare));
    // Report the table's spelling of the code.
    let (code, known) = found.map_or((code, None), |(known, meaning)| (*known, Some(*meaning)));
    // AWS's message about a wrong signature has many lines; faults have one.
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = || if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
    match known {
        Some(Meaning::Lost) => Verdict::Lost,
        Some(Meaning::Contended) => Verdict::Contended,
        Some(Meaning::Throttled) => Verdict::Refused(Fault::Throttled),
        Some(Meaning::NotFound) => Verdict::Refused(Fault::NotFound),
        Some(Meaning::Later) => Verdict::Refused(Fault::Unavailable(text())),
        Some(Meaning::Denied(hint)) => {
            Verdict::Refused(Fault::Denied(format!("{} ({hint})", text())))
        }
        Some(Meaning::Open) => Verdict::Open(text()),
        None if status >= SERVER_ERRORS => Verdict::Open(text()),
        None => Verdict::Refused(Fault::Unclassified(text())),
    }
}

/// The verdict on a failed call.
pub(crate) fn judge<E>(error: &SdkError<E, HttpResponse>) -> Verdict
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(answer) => {
            let (error, status) = (answer.err(), answer.raw().status().as_u16());
            // AWS always names a code; the endpoint may be another server.
            let unnamed = format!("HTTP {status} without an AWS error code ({PLACE})");
            by_code(error.code().unwrap_or(&unnamed), error.message().unwrap_or_default(), status)
        }
        SdkError::ConstructionFailure(_) => {
            Verdict::Refused(Fault::Unclassified(format!("AWS was not called: {}", chain(error))))
        }
        SdkError::TimeoutError(_) => Verdict::Open("AWS did not answer in time".to_owned()),
        SdkError::DispatchFailure(_) if is_about_credentials(error) => Verdict::Refused(
            Fault::Denied(format!("no usable AWS credentials: {} ({CREDENTIALS})", chain(error))),
        ),
        _ => Verdict::Open(format!("AWS did not answer: {} ({PLACE})", chain(error))),
    }
}

/// Whether the SDK found no credentials; it then fails before it sends the call.
fn is_about_credentials(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(<dyn Error>::is::<CredentialsError>)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The causes in one line: the SDK's own text omits them.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut texts: Vec<String> = causes(error).skip(1).map(ToString::to_string).collect();
    texts.dedup();
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

#[cfg(test)]
#[cfg(feature = "mailbox")]
mod tests;
