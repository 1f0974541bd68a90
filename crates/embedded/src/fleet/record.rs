//! The JSON files of a machine, a boot and a launch, each with a version.
//!
//! Not here: reading and writing them (`directory`), and when (`machines`, `execute`).

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

/// The version of the three files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Version(u32);

impl Version {
    /// The only version that this program writes and reads.
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

/// `machine.json`: the fleet's record of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MachineFile {
    pub(super) version: Version,
    pub(super) facts: MachineFacts,
    pub(super) life: MachineGoal,
    pub(super) plan: BootPlan,
    /// Stop operations that were carried out, each until the time after which it cannot repeat.
    pub(super) stops: BTreeMap<StopOp, Timestamp>,
    /// The tags that the machine got since its launch.
    #[serde(default)]
    pub(super) tags: Tags,
}

/// The state that the fleet wants for a machine. The lock and `boot.json` tell the actual state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MachineGoal {
    /// The machine should be up, in this boot.
    Up {
        /// The boot's id.
        boot: String,
        /// The id of the host's boot: no machine outlives it.
        host_boot: String,
        /// Whether a supervisor was started for this boot; false if the launcher died before.
        spawned: bool,
    },
    /// A process is stopping the machine; if it dies, the next process at the gate finishes.
    Stopping,
    /// The machine is stopped.
    Stopped,
    /// A process is ending the machine; if it dies, the next process at the gate finishes.
    Ending,
    /// The machine has ended.
    Gone {
        /// When it ended.
        at: Timestamp,
    },
}

/// The instructions for a boot's supervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BootPlan {
    pub(super) agent: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    pub(super) watchdog: Duration,
    pub(super) boot_delay: Duration,
}

/// The facts of a machine that never change.
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
    /// The user id that only this machine's jobs run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<u32>,
}

impl MachineFacts {
    /// The machine in this state, with these tags. Its mailbox has the machine's id as its key.
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

/// `boot.json`: a supervisor's record of its boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BootFile {
    pub(super) version: Version,
    pub(super) id: String,
    /// The id of the host's boot, within which the supervisor's identity is unique.
    pub(super) host: String,
    pub(super) supervisor: Identity,
    pub(super) began: Timestamp,
    pub(super) phase: BootPhase,
}

/// The progress of a boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum BootPhase {
    /// The supervisor has not started the agent yet.
    Pending,
    /// The supervisor has tried to start the agent.
    Running,
    /// The supervisor has killed all processes of the machine.
    Ended {
        /// When it did.
        at: Timestamp,
        /// Why it did.
        by: SupervisorEnd,
    },
}

/// Why a supervisor ended its machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisorEnd {
    /// The agent exited successfully.
    Agent,
    /// The watchdog's time was over.
    Watchdog,
    /// The time that the agent had asked for came.
    EndsBy,
    /// The supervisor got SIGTERM.
    Terminated,
}

/// A launch; the fleet writes it before it makes the first machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LaunchRecord {
    pub(super) version: Version,
    pub(super) intent: IntentId,
    pub(super) at: Timestamp,
    pub(super) machines: Vec<MachineFacts>,
    pub(super) shortages: Vec<Offering>,
    /// The user data of the machines: a process that finishes the launch may have another one.
    #[serde(default)]
    pub(super) user_data: String,
}
