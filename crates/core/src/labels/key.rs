//! The keys a label may have.
//!
//! Not here: what their values look like (`value`).

use std::fmt;

use crate::spelling;

macro_rules! keys {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A key, one of a closed set.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LabelKey {
            $($(#[$doc])* $name),+
        }

        impl LabelKey {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// As it is written.
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
    /// An image by the cloud's id.
    Ami = "ami",
    /// How the machine is paid for.
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
    /// Whether people may log in.
    Ssh = "ssh",
    /// Whether the machine has no public address.
    Private = "private",
    /// Whether the machine is kept after a failure.
    Debug = "debug",
    /// Whether the machine can run virtual machines.
    NestedVirt = "nested-virt",
    /// Which stack.
    Env = "env",
    /// Which region's stack.
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
    /// The key of this name; case does not matter, as it does not to GitHub.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.as_str().eq_ignore_ascii_case(text))
    }

    /// The keys that this resembles.
    pub fn suggestions(text: &str) -> Vec<&'static str> {
        spelling::nearest(text, Self::ALL.iter().map(|key| key.as_str()))
    }

    /// Whether it only tells labels, or stacks, apart and asks for nothing.
    pub const fn asks_for_nothing(self) -> bool {
        matches!(self, Self::Env | Self::Region | Self::Tag | Self::RunId | Self::Comment)
    }
}

impl fmt::Display for LabelKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
