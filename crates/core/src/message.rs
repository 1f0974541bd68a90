//! The resource pool's message about an idle instance: its fields, its text and its versions.
//!
//! The text keeps the field names of the first generation of such messages (`id`, `resourceClass`,
//! `instanceType`, `cpu`, `mmem`, `usageClass`, `threshold`) and adds ours. Unknown *fields* are
//! ignored. A message without `v` is of that first generation: it names no instance generation, so
//! a claim reads the record first. A message with an unknown `v` goes back verbatim for a newer
//! reader.
//!
//! Not here: judging a message against a request (`pickup`).

use serde::{Deserialize, Serialize};

use crate::class::Usage;
use crate::ids::{ClassName, Generation, InstanceId, InstanceType, PoolName, SpecHash, TrustGroup};
use crate::instance::Tier;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::time::Timestamp;

/// The version that this program writes.
pub const VERSION: u32 = 1;

/// An idle instance as the resource pool, or the class directory, describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advert {
    /// The machine's id.
    pub id: InstanceId,
    /// The class it was launched as.
    pub class: ClassName,
    /// Its type.
    pub instance_type: InstanceType,
    /// Its own vCPUs.
    pub vcpu: u32,
    /// Its own memory.
    pub memory_mib: u32,
    /// How it is paid for.
    pub usage: Usage,
    /// When it expires.
    pub deadline: Timestamp,
    /// The generation at which it was idle; unknown in messages of the first generation.
    pub generation: Option<Generation>,
    /// How it came to be idle.
    pub tier: Tier,
    /// The pool it stands by in.
    pub pool: Option<PoolName>,
    /// The trust group whose code ran on it last.
    pub trust: Option<TrustGroup>,
    /// The hash of the specification it was built from.
    pub spec_hash: Option<SpecHash>,
}

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// A message that this version can read.
    Advert(Advert),
    /// A message of another version: the reader must hand it back verbatim and never drop it.
    Newer {
        /// Its `v`, as it was written. A later version may not even be a number.
        version: String,
    },
}

/// A message that no version can read.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message is longer than any of ours.
    #[error("the message has {bytes} bytes; at most {MESSAGE_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The message is not the expected JSON; the source names line and column.
    #[error("the message is not readable")]
    Malformed(#[source] serde_json::Error),
    /// A required field is missing.
    #[error("the message has no `{field}`")]
    Missing {
        /// The field's name.
        field: &'static str,
    },
    /// The message does not say how the machine is paid for, so it matches no request.
    #[error("the message has no `usageClass`")]
    UsageMissing,
}

#[derive(Deserialize)]
struct Versioned {
    v: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(skip_serializing_if = "Option::is_none")]
    v: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<InstanceId>,
    // One early document used this name for `id`.
    #[serde(skip_serializing)]
    instance_id: Option<InstanceId>,
    resource_class: Option<ClassName>,
    instance_type: Option<InstanceType>,
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mmem: Option<u32>,
    // The same document used this name for `mmem`.
    #[serde(skip_serializing)]
    mem: Option<u32>,
    usage_class: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<Generation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<Tier>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pool: Option<PoolName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trust: Option<TrustGroup>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec_hash: Option<SpecHash>,
}

/// Writes a message of the present version.
pub fn encode(advert: &Advert) -> String {
    let advert = advert.clone();
    let wire = Wire {
        v: Some(VERSION),
        id: Some(advert.id),
        instance_id: None,
        resource_class: Some(advert.class),
        instance_type: Some(advert.instance_type),
        cpu: Some(advert.vcpu),
        mmem: Some(advert.memory_mib),
        mem: None,
        usage_class: Some(advert.usage),
        threshold: Some(advert.deadline),
        generation: advert.generation,
        tier: Some(advert.tier),
        pool: advert.pool,
        trust: advert.trust,
        spec_hash: advert.spec_hash,
    };
    serde_json::to_string(&wire).expect("a message has string keys only, so it serialises")
}

/// Reads a message of any version.
pub fn decode(text: &str) -> Result<Decoded, MessageError> {
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(MessageError::TooLong { bytes: text.len() });
    }
    let wire: Wire = match serde_json::from_str(text) {
        Ok(wire) => wire,
        // Another version may have changed any field, so only the number is read.
        Err(error) => {
            return match serde_json::from_str(text) {
                Ok(Versioned { v: Some(version) }) if version != VERSION => {
                    Ok(Decoded::Newer { version: version.to_string() })
                }
                _ => Err(MessageError::Malformed(error)),
            };
        }
    };
    match wire.v {
        Some(version) if version != VERSION => Ok(Decoded::Newer { version: version.to_string() }),
        _ => advert(wire).map(Decoded::Advert),
    }
}

fn advert(wire: Wire) -> Result<Advert, MessageError> {
    // A message of the first generation may have no threshold; then the record decides.
    let no_deadline = wire.v.is_none().then(|| Timestamp::from_millis(i64::MAX));
    let missing = |field| MessageError::Missing { field };
    Ok(Advert {
        id: wire.id.or(wire.instance_id).ok_or(missing("id"))?,
        class: wire.resource_class.ok_or(missing("resourceClass"))?,
        instance_type: wire.instance_type.ok_or(missing("instanceType"))?,
        vcpu: wire.cpu.ok_or(missing("cpu"))?,
        memory_mib: wire.mmem.or(wire.mem).ok_or(missing("mmem"))?,
        usage: wire.usage_class.ok_or(MessageError::UsageMissing)?,
        deadline: wire.threshold.or(no_deadline).ok_or(missing("threshold"))?,
        generation: wire.generation,
        tier: wire.tier.unwrap_or(Tier::Released),
        pool: wire.pool,
        trust: wire.trust,
        spec_hash: wire.spec_hash,
    })
}
