//! What is written down of a machine, a boot and a launch. All three have a version.
//!
//! Not here: where and when they are written (`home`, `yard`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_agent::runner::tree::Identity;
use bullpen_core::class::{Architecture, Usage};
use bullpen_core::creation::Offering;
use bullpen_core::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, StopOp, Zone,
};
use bullpen_core::ports::{Machine, MachineState, Tags};
use bullpen_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, de};

/// The version of all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Version(u32);

impl Version {
    /// What this program writes, and all it reads.
    pub(super) const CURRENT: Self = Self(1);
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let found = u32::deserialize(deserializer)?;
        if found == Self::CURRENT.0 {
            return Ok(Self::CURRENT);
        }
        let known = Self::CURRENT.0;
        let message = format!(
            "version {found}, and this program knows {known}; run the Bullpen that wrote it"
        );
        Err(de::Error::custom(message))
    }
}

/// `machine.json`: what the fleet knows of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineFile {
    pub(super) version: Version,
    pub(super) facts: MachineFacts,
    pub(super) life: MachineGoal,
    pub(super) plan: BootPlan,
    /// Stop operations that were carried out, each until it could not come again.
    pub(super) stops: BTreeMap<StopOp, Timestamp>,
    /// What it was tagged with since its launch.
    #[serde(default)]
    pub(super) tags: Tags,
}

/// What the fleet means a machine to do. Whether it does, its lock and `boot.json` say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MachineGoal {
    /// To be up, in this boot.
    Up {
        /// Which boot.
        boot: String,
        /// The host's own boot: no machine outlives it.
        host_boot: String,
        /// Whether a supervisor was started for it. Not yet, if the launcher was killed before.
        spawned: bool,
    },
    /// Being stopped; whoever finds it so goes on with it.
    Stopping,
    /// Stopped.
    Stopped,
    /// Being ended; likewise.
    Ending,
    /// Ended.
    Gone {
        /// When.
        at: Timestamp,
    },
}

/// What a boot's supervisor is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BootPlan {
    pub(super) agent: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) watchdog: Duration,
    pub(super) boot_delay: Duration,
}

/// What a machine is, from its launch to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineFacts {
    pub(super) id: InstanceId,
    pub(super) intent: IntentId,
    pub(super) class: ClassName,
    pub(super) pool: Option<PoolName>,
    pub(super) instance_type: InstanceType,
    pub(super) vcpu: u32,
    pub(super) memory_mib: u32,
    pub(super) architecture: Architecture,
    pub(super) zone: Zone,
    pub(super) usage: Usage,
    pub(super) launched_at: Timestamp,
    /// The user that only its jobs are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<u32>,
}

impl MachineFacts {
    /// The machine in this state, with these tags. Its mailbox is named after it.
    pub(super) fn machine(&self, state: MachineState, tags: Tags) -> Machine {
        Machine {
            id: self.id.clone(),
            state,
            intent: self.intent.clone(),
            class: self.class.clone(),
            pool: self.pool.clone(),
            instance_type: self.instance_type.clone(),
            vcpu: self.vcpu,
            memory_mib: self.memory_mib,
            architecture: self.architecture,
            zone: self.zone.clone(),
            usage: self.usage,
            launched_at: self.launched_at,
            mailbox: MailboxKey::new(self.id.as_str()),
            tags,
        }
    }

    pub(super) fn offering(&self) -> Offering {
        Offering {
            usage: self.usage,
            instance_type: self.instance_type.clone(),
            zone: self.zone.clone(),
        }
    }
}

/// `boot.json`: what a supervisor says of its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BootFile {
    pub(super) version: Version,
    pub(super) id: String,
    /// The host's own boot, without which the supervisor's identity means nothing.
    pub(super) host: String,
    pub(super) supervisor: Identity,
    pub(super) began: Timestamp,
    pub(super) phase: BootPhase,
}

/// How far a boot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BootPhase {
    /// The agent is not started yet.
    Pending,
    /// It was, or should have been.
    Running,
    /// Everything was killed.
    Ended {
        /// When.
        at: Timestamp,
        /// Why.
        by: SupervisorEnd,
    },
}

/// Why a supervisor ended its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisorEnd {
    /// The agent said that it is done.
    Agent,
    /// The watchdog's time was over.
    Watchdog,
    /// The agent had asked for this time.
    EndsBy,
    /// The supervisor was told to.
    Terminated,
}

/// A launch: written down before the first of its machines is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchRecord {
    pub(super) version: Version,
    pub(super) intent: IntentId,
    pub(super) at: Timestamp,
    pub(super) machines: Vec<MachineFacts>,
    pub(super) shortages: Vec<Offering>,
    /// What the machines are told; whoever finishes the launch may have something else to tell.
    #[serde(default)]
    pub(super) user_data: String,
}
