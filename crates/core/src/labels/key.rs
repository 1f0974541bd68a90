//! The keys of labels.
//!
//! Not here: the form of their values (`value`).

use std::fmt;

use crate::spelling;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A key of a label; the set is closed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LabelKey {
            $($(#[$doc])* $name),+
        }

        impl LabelKey {
            /// All keys.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The key as a label writes it.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }
        }
    };
}

keys! {
    /// A named machine shape.
    Runner = "runner",
    /// vCPUs.
    Cpu = "cpu",
    /// Memory in GiB.
    Ram = "ram",
    /// Machine families or types.
    Family = "family",
    /// A named image.
    Image = "image",
    /// An image by its AMI id.
    Ami = "ami",
    /// Whether, and how, to use spot capacity.
    Spot = "spot",
    /// The machine's volume.
    Volume = "volume",
    /// Deprecated: a size of disk.
    Disk = "disk",
    /// Deprecated, older than `disk`.
    Hdd = "hdd",
    /// A volume that outlives the machine.
    Sticky = "sticky",
    /// When a lost job is tried again.
    Retry = "retry",
    /// Additions such as caches.
    Extras = "extras",
    /// Whether people may log in by SSH.
    Ssh = "ssh",
    /// Whether the machine has no public address.
    Private = "private",
    /// Whether the machine is kept after a failure.
    Debug = "debug",
    /// Whether the machine can run virtual machines.
    NestedVirt = "nested-virt",
    /// The stack that the job is for.
    Env = "env",
    /// The region of the stack that the job is for.
    Region = "region",
    /// A free marker.
    Tag = "tag",
    /// A standby pool.
    Pool = "pool",
    /// A marker that makes labels unique.
    RunId = "run-id",
    /// A marker that makes labels unique.
    Comment = "comment",
    /// Another product's fleet.
    Fleet = "fleet",
}

impl LabelKey {
    /// The key of this name; case does not matter, because GitHub ignores it in labels.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.as_str().eq_ignore_ascii_case(text))
    }

    /// Keys with similar names.
    pub fn suggestions(text: &str) -> Vec<&'static str> {
        spelling::nearest(text, Self::ALL.iter().map(|key| key.as_str()))
    }

    /// Whether the key only distinguishes labels or stacks and asks for nothing.
    pub const fn asks_for_nothing(self) -> bool {
        matches!(self, Self::Env | Self::Region | Self::Tag | Self::RunId | Self::Comment)
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
