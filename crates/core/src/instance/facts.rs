//! The properties of a machine that its launch fixes.
//!
//! Not here: anything that changes ([`super::Record`]).

use serde::{Deserialize, Serialize};

use crate::class::{Architecture, Usage};
use crate::creation::{Intent, Offering};
use crate::ids::{ClassName, InstanceType, IntentId, MailboxKey, PoolName, SpecHash, Zone};
use crate::ports::Machine;
use crate::time::Timestamp;

/// The properties of a machine that never change after its launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFacts {
    /// The class it was launched as.
    pub class: ClassName,
    /// Its type, as launched.
    pub instance_type: InstanceType,
    /// Its own vCPUs, even if its class has changed since.
    pub vcpu: u32,
    /// Its own memory.
    pub memory_mib: u32,
    /// Its zone.
    pub zone: Zone,
    /// How it is paid for.
    pub usage: Usage,
    /// Its architecture.
    pub architecture: Architecture,
    /// The hash of the specification it was built from.
    pub spec_hash: SpecHash,
    /// The pool it was launched for, if any.
    pub pool: Option<PoolName>,
    /// Where its mailbox is.
    pub mailbox: MailboxKey,
    /// The intent it was launched under.
    pub intent: IntentId,
    /// When it was launched.
    pub launched_at: Timestamp,
}

impl InstanceFacts {
    /// The kind of capacity that the cloud needs to start it.
    pub fn offering(&self) -> Offering {
        Offering {
            usage: self.usage,
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
        }
    }

    /// The facts of a machine launched under an intent: the cloud knows its properties, the intent
    /// its purpose.
    pub fn of(machine: &Machine, intent: &Intent) -> Self {
        Self {
            class: intent.class.clone(),
            instance_type: machine.instance_type.clone(),
            vcpu: machine.vcpu,
            memory_mib: machine.memory_mib,
            zone: machine.zone.clone(),
            usage: machine.usage,
            architecture: machine.architecture,
            spec_hash: intent.spec_hash.clone(),
            pool: intent.pool.clone(),
            mailbox: machine.mailbox.clone(),
            intent: intent.id.clone(),
            launched_at: machine.launched_at,
        }
    }
}
