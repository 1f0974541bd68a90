//! Runner classes: named machine shapes, and what a machine must be to count as one.
//!
//! Not here: reading them from a configuration file (`config`), or labels.

use serde::{Deserialize, Serialize};

use crate::ids::{ClassName, ImageName};
use crate::labels::volume::Volume;

/// How a machine is paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// Cheap; the cloud may end it with two minutes' notice.
    Spot,
    /// Runs until it is terminated.
    OnDemand,
}

impl Usage {
    /// The usage as messages and the command line write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }
}

/// A processor architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// `x86_64`.
    X64,
    /// `aarch64`.
    Arm64,
}

impl Architecture {
    /// The architecture as labels and names of images write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X64 => "x64",
            Self::Arm64 => "arm64",
        }
    }

    /// The architecture of this name.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::X64, Self::Arm64].into_iter().find(|known| known.as_str() == text)
    }
}

/// A range of whole vCPUs, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VcpuRange {
    /// The fewest.
    pub min: u32,
    /// The most.
    pub max: u32,
}

impl VcpuRange {
    /// Exactly this many, as in the seven default classes.
    pub const fn exactly(count: u32) -> Self {
        Self { min: count, max: count }
    }

    /// Whether `count` is in the range.
    pub const fn contains(self, count: u32) -> bool {
        self.min <= count && count <= self.max
    }
}

/// Scripts that a machine of a class runs with bash before it takes jobs. The image's scripts run
/// before the class's, and a machine on which a script fails takes no jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// The image's script, run once per machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_preinstall: Option<String>,
    /// The class's script, run once per machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preinstall: Option<String>,
    /// The image's script, run at each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_prerun: Option<String>,
    /// The class's script, run at each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prerun: Option<String>,
}

impl Scripts {
    /// Whether there is no script.
    pub const fn is_empty(&self) -> bool {
        let Self { image_preinstall, preinstall, image_prerun, prerun } = self;
        image_preinstall.is_none()
            && preinstall.is_none()
            && image_prerun.is_none()
            && prerun.is_none()
    }
}

/// What the machines of a class boot from. The embedded fleet, whose machines are processes, ignores
/// it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootSource {
    /// The image's name in the configuration; the stack's default image if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// The cloud's id of the image, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami: Option<String>,
    /// How the cloud finds the image if `ami` is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<ImageSearch>,
    /// The device name of the image's first disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device: Option<String>,
    /// The minimum size of that disk, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gib_min: Option<u32>,
    /// The volume settings of that disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}

fn is_usual(base: &BootSource) -> bool {
    *base == BootSource::default()
}

/// A search for the newest image of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageSearch {
    /// The name, in which `*` stands for any text.
    pub name: String,
    /// The account that owns the image; the stack's own if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A named machine shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerClass {
    /// Its name, which also names the queue that advertises its idle machines.
    pub name: ClassName,
    /// How many vCPUs its machines have.
    pub vcpu: VcpuRange,
    /// The minimum memory of its machines, in MiB.
    pub memory_mib_min: u32,
    /// Its architecture.
    pub architecture: Architecture,
    /// What its machines run before they take jobs.
    #[serde(default, skip_serializing_if = "Scripts::is_empty")]
    pub scripts: Scripts,
    /// What its machines boot from. Boxed because classes are cloned often and few callers read it.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub base: Box<BootSource>,
}

impl RunnerClass {
    /// The classes of a stack that configures none: name, vCPU, minimum MiB.
    pub fn defaults() -> Vec<Self> {
        [
            ("large", 2, 4_096),
            ("xlarge", 4, 8_192),
            ("2xlarge", 8, 16_384),
            ("4xlarge", 16, 32_768),
            ("8xlarge", 32, 65_536),
            ("12xlarge", 48, 98_304),
            ("16xlarge", 64, 131_072),
        ]
        .map(|(name, vcpu, memory_mib_min)| Self {
            name: ClassName::new(name),
            vcpu: VcpuRange::exactly(vcpu),
            memory_mib_min,
            architecture: Architecture::X64,
            scripts: Scripts::default(),
            base: Box::default(),
        })
        .into()
    }
}
