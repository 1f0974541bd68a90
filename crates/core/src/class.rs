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
    /// Cheap, and may be taken away with two minutes' notice.
    Spot,
    /// Kept until given back.
    OnDemand,
}

impl Usage {
    /// As it is written in messages and on the command line.
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
    /// As it is written in labels and in names of images.
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
    /// Exactly this many, as the seven default classes have it.
    pub const fn exactly(count: u32) -> Self {
        Self { min: count, max: count }
    }

    /// Whether a machine with this many is inside.
    pub const fn contains(self, count: u32) -> bool {
        self.min <= count && count <= self.max
    }
}

/// What the machines of a class run before they take jobs, each with bash and to its end, or the
/// machine is no good. An image's own come before the class's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scripts {
    /// The image's, once per machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_preinstall: Option<String>,
    /// The class's, once per machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preinstall: Option<String>,
    /// The image's, each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_prerun: Option<String>,
    /// The class's, each boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prerun: Option<String>,
}

impl Scripts {
    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        let Self { image_preinstall, preinstall, image_prerun, prerun } = self;
        image_preinstall.is_none()
            && preinstall.is_none()
            && image_prerun.is_none()
            && prerun.is_none()
    }
}

/// What the machines of a class boot from. Machines that are processes have no use for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BootSource {
    /// The image, as people name it; the stack's usual one where nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageName>,
    /// The image as the cloud names it, where that is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ami: Option<String>,
    /// How the cloud finds it otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub search: Option<ImageSearch>,
    /// What the image's first disk is called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_device: Option<String>,
    /// The least size of that disk, in GiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_gib_min: Option<u32>,
    /// What that disk is like.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}

fn is_usual(base: &BootSource) -> bool {
    *base == BootSource::default()
}

/// The newest image of this name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ImageSearch {
    /// Its name, with `*`.
    pub name: String,
    /// The account that owns it; our own where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
}

/// A named machine shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunnerClass {
    /// Its name; also decides which queue its idle machines are advertised in.
    pub name: ClassName,
    /// How many vCPUs a machine of it has.
    pub vcpu: VcpuRange,
    /// The least memory, in MiB.
    pub memory_mib_min: u32,
    /// Its architecture.
    pub architecture: Architecture,
    /// What its machines run before they take jobs.
    #[serde(default, skip_serializing_if = "Scripts::is_empty")]
    pub scripts: Scripts,
    /// What its machines boot from. Boxed: few look at it, and classes are passed around a lot.
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
