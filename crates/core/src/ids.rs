//! One type per identifier, so that swapping two arguments is a compile error, not a lost machine.
//!
//! All of them are short immutable strings, cheap to clone, ordered (for deterministic maps) and
//! transparent in JSON. Counters that fence ([`Generation`], [`Revision`], [`FencingToken`]) are
//! numbers of their own types.
//!
//! Not here: making new ids (the `Ids` port), or what a name may look like (`config`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! id {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Wraps a string that is already known to be valid.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(Arc::from(text.as_ref()))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                Ok(Self::new(text))
            }
        }
    )+};
}

id! {
    /// One machine: an EC2 instance id, or the embedded fleet's equivalent.
    InstanceId,
    /// The name of a runner class.
    ClassName,
    /// The name of a standby pool.
    PoolName,
    /// The name of an image: one of RunsOn's, or one of `images:`.
    ImageName,
    /// A demand for N runners; in workflow mode `<run>.<attempt>.<name>`.
    RequestId,
    /// One attempt of one workflow run, `<run>.<attempt>`.
    RunAttempt,
    /// One GitHub Actions job.
    JobId,
    /// The nonce of one claim: two workers of one owner are told apart by it.
    ClaimId,
    /// One launch intent; also the client token's stem and the machine's tag.
    IntentId,
    /// Jobs that may use one machine after each other; by default `owner/repo`.
    TrustGroup,
    /// The key of an instance's two mailbox records.
    MailboxKey,
    /// A machine type as the cloud names it, such as `c6i.large`.
    InstanceType,
    /// An availability zone.
    Zone,
    /// The digest of everything that shapes a machine, with its version in front.
    SpecHash,
    /// The nonce of one intended stop call.
    StopOp,
    /// The name of a queue.
    QueueName,
    /// The name of a lease.
    LeaseName,
    /// A process that may hold leases.
    HolderId,
    /// `owner/repo`.
    Repository,
    /// A runner's name at GitHub, at most 64 characters.
    RunnerName,
    /// The name of a runner group at GitHub.
    RunnerGroup,
    /// A queue's handle of a received message, to delete or defer it.
    Receipt,
}

impl RunAttempt {
    /// The run's id, which all its attempts share and labels may name.
    pub fn run_id(&self) -> &str {
        self.as_str().split('.').next().unwrap_or_default()
    }
}

macro_rules! counter {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl $name {
            /// The next value.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
}

counter! {
    /// Raised by every change of an instance's owner. Every assignment, report and message carries
    /// it; a stale one is ignored.
    Generation,
    /// Raised by every write to a stored document: equal revisions mean no write in between.
    Revision,
    /// Raised by every change of a lease's holder.
    FencingToken,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_transparent_in_json() {
        let id = InstanceId::new("i-1");
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, "\"i-1\"");
        assert_eq!(serde_json::from_str::<InstanceId>(&json).unwrap(), id);
        assert_eq!(serde_json::from_str::<InstanceId>("\"i-\\u0031\"").unwrap(), id);
        assert_eq!(serde_json::to_string(&Generation(7)).unwrap(), "7");
    }
}
