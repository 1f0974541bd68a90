//! What a stack's machines are launched with, whatever their class.
//!
//! Not here: reading it from a configuration (the `bullpen` command does), or what EC2 is told
//! (`template`, `launch`).

use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::class::Architecture;
use bullpen_core::download::Download;
use bullpen_core::ids::ImageName;
use bullpen_core::parameters::LaunchSite;

use crate::names::StackName;

/// How long EC2 may not show what it launched. As a rule it is seconds.
pub const SHOWN_WITHIN: Duration = Duration::from_secs(60);

/// A stack's part of EC2.
#[derive(Clone, Debug)]
pub struct Ec2Settings {
    /// Whose machines they are.
    pub stack: StackName,
    /// Where they may be: one override for each.
    pub subnets: Vec<String>,
    /// What may reach them, which is nothing, and what they may reach.
    pub security_groups: Vec<String>,
    /// The instance profile's name or ARN: its role is who an agent is.
    pub instance_profile: String,
    /// What image names stand for.
    pub images: BTreeMap<ImageName, String>,
    /// Where machines get the agent from, if not from their image.
    pub agents: BTreeMap<Architecture, Download>,
    /// Where they get GitHub's runner from, if not from their image.
    pub runners: BTreeMap<Architecture, Download>,
    /// When a machine ends at the latest, after each of its boots.
    pub watchdog: Duration,
    /// How long EC2 may not show what it launched, usually [`SHOWN_WITHIN`].
    pub shown_within: Duration,
    /// The user that jobs run as.
    pub user: String,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether it may use the image's container engine, which is another way to become root.
    pub docker: bool,
    /// How far metadata may travel: 1 is the machine itself, 2 its containers.
    pub metadata_hops: u8,
    /// The most that a type may cost above the cheapest that would do, in percent.
    pub price_protection: u32,
    /// What `refresh` learned; nothing can be launched before.
    pub ground: Option<LaunchSite>,
}

impl Ec2Settings {
    /// The name that `GetInstanceProfile` knows it by.
    pub(crate) fn profile_name(&self) -> &str {
        self.instance_profile.rsplit('/').next().unwrap_or(&self.instance_profile)
    }
}
