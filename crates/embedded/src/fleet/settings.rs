//! What a process fleet is made with, and why one cannot be opened.
//!
//! Not here: reading any of it from a file or the environment (`bullpen` does, at the door).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bullpen_core::creation::Offering;

use super::catalogue::Catalogue;
use super::isolation::IsolationSettings;

/// Everything a process fleet needs to know.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// Where machines are kept, one directory each; made if absent. One stack, one directory.
    pub directory: PathBuf,
    /// The supervisor's command line; the machine's directory is appended. The program is an
    /// absolute path, or a name to be found by `PATH`.
    pub supervisor: Vec<OsString>,
    /// The agent's command line, likewise; `--machine DIR --boot BOOT` is appended.
    pub agent: Vec<OsString>,
    /// All of the environment that supervisors and agents start with, besides their mark.
    pub environment: BTreeMap<String, String>,
    /// Kept in each machine's directory as it was at its launch. For machines of a class with
    /// scripts it must be [`bullpen_agent::machine::UserData`], and the scripts are added to it.
    pub user_data: String,
    /// How long after its boot a machine ends, whatever happens.
    pub watchdog: Duration,
    /// How long a boot takes before the agent is started.
    pub boot_delay: Duration,
    /// What there is to be had.
    pub capacity: Capacity,
    /// What there is to choose from.
    pub catalogue: Catalogue,
    /// Where ids of machines and boots come from.
    pub entropy: Entropy,
    /// How jobs are kept from this host; absent, they run as this process does.
    pub isolation: Option<IsolationSettings>,
}

/// How much of everything there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The most machines that may be up at once; none means that there is no limit.
    pub machines_max: Option<u32>,
    /// What cannot be had at all.
    pub out_of: BTreeSet<Offering>,
}

/// A source of numbers that never repeat, given by the caller.
#[derive(Clone)]
pub struct Entropy(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Entropy {
    /// What this function returns must be random over all of its range.
    pub fn new(next: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(next))
    }

    pub(super) fn next(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

/// A fleet that was not opened.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A command line without a program.
    #[error("the {which}'s command line is empty")]
    NoProgram {
        /// Whose.
        which: &'static str,
    },
    /// Paths and arguments are kept in JSON and in the environment of processes.
    #[error("{what} is not UTF-8: {}", text.display())]
    NotText {
        /// What it was for.
        what: &'static str,
        /// What was given.
        text: OsString,
    },
    /// The file system refused.
    #[error("could not use {} for machines", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// Processes are told apart by what the kernel says of them there.
    #[error("{} cannot be read", path.display())]
    NoProc {
        /// What was to be read.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl FleetError {
    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoProgram { .. } => "name the program that is to be run",
            Self::NotText { .. } => "name a state directory and programs whose paths are UTF-8",
            Self::Io { .. } => {
                "check that the directory's parent exists and that this user may write in it"
            }
            Self::NoProc { .. } => "the process fleet needs Linux with /proc mounted",
        }
    }
}
