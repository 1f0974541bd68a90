//! What AWS answers when it does not do what it was asked, in the ports' words.
//!
//! [`TABLE`] is the one table from AWS's codes to what they mean to us. What a call's failure means
//! is a [`Verdict`]: the condition did not hold, the call certainly did nothing, or nobody can say.
//! A call that was given up on, or whose answer broke off, may have landed; so may one that the
//! service itself failed at.
//!
//! Not here: trying again (the engine does), except for writes that met in a transaction.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use aws_smithy_types::error::metadata::ProvideErrorMetadata;
use bullpen_core::ports::Fault;
#[cfg(feature = "mailbox")]
use bullpen_core::ports::Written;

/// What a failed call means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The condition did not hold.
    Lost,
    /// Another write to the same item was under way; nothing was done.
    Contended,
    /// Nothing was done.
    Refused(Fault),
    /// It may have been done.
    Open(String),
}

impl Verdict {
    /// As a conditional write's answer.
    #[cfg(feature = "mailbox")]
    pub(crate) fn written<T>(self) -> Result<Written<T>, Fault> {
        match self {
            Self::Lost => Ok(Written::Lost),
            Self::Contended => Err(Fault::Throttled),
            Self::Refused(fault) => Err(fault),
            Self::Open(how) => {
                tracing::debug!(how, "a write is open");
                Ok(Written::Unknown)
            }
        }
    }

    /// As the fault of a call that has no condition.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Lost => Fault::Unclassified("a condition failed where none was set".to_owned()),
            Self::Contended => Fault::Throttled,
            Self::Refused(fault) => fault,
            Self::Open(how) => Fault::Unavailable(how),
        }
    }
}

/// What a code means.
#[derive(Clone, Copy, Debug)]
enum Meaning {
    Lost,
    Contended,
    Throttled,
    NotFound,
    /// Refused for a while.
    Later,
    /// Refused until somebody does this.
    Denied(&'static str),
    /// The service failed; what it was doing may be done.
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

/// AWS's codes. Those of SQS may have a prefix, which is cut off where the whole is not known.
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

/// What an answer with this code means. Unknown codes are kept verbatim.
pub(crate) fn by_code(code: &str, message: &str, status: u16) -> Verdict {
    const SERVER_ERRORS: u16 = 500;
    let meaning = |code: &str| TABLE.iter().find(|(known, _)| *known == code);
    let bare = code.rsplit('.').next().unwrap_or(code);
    let found = meaning(code).or_else(|| meaning(bare));
    // What is said is said as AWS says it.
    let (code, known) = found.map_or((code, None), |(known, meaning)| (*known, Some(*meaning)));
    // What AWS says of a signature has many lines.
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = || if message.is_empty() { code.to_owned() } else { format!("{code}: {message}") };
    match known {
        Some(Meaning::Lost) => Verdict::Lost,
        Some(Meaning::Contended) => Verdict::Contended,
        Some(Meaning::Throttled) => Verdict::Refused(Fault::Throttled),
        Some(Meaning::NotFound) => Verdict::Refused(Fault::NotFound),
        Some(Meaning::Later) => Verdict::Refused(Fault::Unavailable(said())),
        Some(Meaning::Denied(hint)) => {
            Verdict::Refused(Fault::Denied(format!("{} ({hint})", said())))
        }
        Some(Meaning::Open) => Verdict::Open(said()),
        None if status >= SERVER_ERRORS => Verdict::Open(said()),
        None => Verdict::Refused(Fault::Unclassified(said())),
    }
}

/// What a failed call means.
pub(crate) fn judge<E>(error: &SdkError<E, HttpResponse>) -> Verdict
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match error {
        SdkError::ServiceError(answer) => {
            let (said, status) = (answer.err(), answer.raw().status().as_u16());
            // AWS always names a code; something else may be at the endpoint.
            let unnamed = format!("HTTP {status} without a code of AWS's ({PLACE})");
            by_code(said.code().unwrap_or(&unnamed), said.message().unwrap_or_default(), status)
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

/// A call without credentials fails before it is sent.
fn is_about_credentials(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(<dyn Error>::is::<CredentialsError>)
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}

/// The causes in one line: the SDK's own text names none of them.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = causes(error).skip(1).map(ToString::to_string).collect();
    said.dedup();
    if said.is_empty() { error.to_string() } else { said.join(": ") }
}

#[cfg(test)]
#[cfg(feature = "mailbox")]
mod tests;
