//! The settings that all machines of a stack share.
//!
//! Not here: reading them from a configuration (the `bullpen` command), or the calls that use them
//! (`template`, `launch`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::class::Architecture;
use bullpen_core::download::Download;
use bullpen_core::ids::ImageName;

use crate::names::StackName;

/// How long EC2 may take to show a machine that it launched. Usually it takes seconds.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(60);

/// How a stack uses EC2.
#[derive(Clone, Debug)]
pub struct Ec2Settings {
    /// The stack that owns the machines.
    pub stack: StackName,
    /// The subnets to launch in: one override for each.
    pub subnets: Vec<String>,
    /// The security groups: nothing may connect to a machine; they restrict where it connects to.
    pub security_groups: Vec<String>,
    /// The instance profile's name or ARN; agents act as its role.
    pub instance_profile: String,
    /// The AMI of each image name.
    pub images: BTreeMap<ImageName, String>,
    /// Where machines download the agent from, if it is not in their image.
    pub agents: BTreeMap<Architecture, Download>,
    /// Where machines download GitHub's runner program from, if it is not in their image.
    pub runners: BTreeMap<Architecture, Download>,
    /// When the watchdog powers a machine off, counted from each boot.
    pub watchdog: Duration,
    /// How long EC2 may take to show a machine that it launched, usually [`SHOWN_WITHIN`].
    pub shown_within: Duration,
    /// The user that jobs run as.
    pub user: String,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether that user may use the image's container engine, which is as good as root.
    pub docker: bool,
    /// The hop limit of instance metadata: 1 for the machine only, 2 for its containers too.
    pub metadata_hops: u8,
    /// How many percent a type may cost above the cheapest that would do.
    pub price_protection: u32,
}

impl Ec2Settings {
    /// The profile's name, as `GetInstanceProfile` wants it.
    pub(crate) fn profile_name(&self) -> &str {
        self.instance_profile.rsplit('/').next().unwrap_or(&self.instance_profile)
    }
}
