//! The settings of a process fleet, and the errors of opening one.
//!
//! Not here: reading settings from files or the environment (`bullpen`).

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

/// The settings of a process fleet.
#[derive(Clone, Debug)]
pub struct FleetSettings {
    /// The parent of the machines' directories; made if missing. Each stack has its own.
    pub directory: PathBuf,
    /// The supervisor's command line; the machine's directory is appended. The program is an
    /// absolute path, or a name to be found by `PATH`.
    pub supervisor: Vec<OsString>,
    /// The agent's command line, found in the same way; the supervisor appends
    /// `--machine DIR --boot BOOT`.
    pub agent: Vec<OsString>,
    /// The whole environment of supervisors and agents, apart from their mark.
    pub environment: BTreeMap<String, String>,
    /// The user data that a launch writes to each machine's directory. For a class with scripts it
    /// must be [`bullpen_agent::machine::UserData`], to which the launch adds the scripts.
    pub user_data: String,
    /// How long after its boot the supervisor ends a machine in any case.
    pub watchdog: Duration,
    /// How long after its start the supervisor starts the agent.
    pub boot_delay: Duration,
    /// The limits of launches and starts.
    pub capacity: Capacity,
    /// The machine types and zones.
    pub catalogue: Catalogue,
    /// The source of ids of machines and boots.
    pub entropy: Entropy,
    /// How to isolate jobs from this host; if `None`, jobs run as this process does.
    pub isolation: Option<IsolationSettings>,
}

/// How many machines the fleet can have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The most machines that may be up at once; `None` for no limit.
    pub machines_max: Option<u32>,
    /// Offerings without capacity.
    pub out_of: BTreeSet<Offering>,
}

/// A source of numbers that never repeat, given by the caller.
#[derive(Clone)]
pub struct Entropy(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Entropy {
    /// `next` must return random numbers from the whole range.
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

/// Why a fleet could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A command line names no program.
    #[error("the {which}'s command line is empty")]
    NoProgram {
        /// The program's role: agent or supervisor.
        which: &'static str,
    },
    /// A path or argument is not UTF-8; the fleet stores them in JSON and in environments.
    #[error("{what} is not UTF-8: {}", text.display())]
    NotText {
        /// The purpose of the text.
        what: &'static str,
        /// The given text.
        text: OsString,
    },
    /// The file system refused an operation.
    #[error("could not use {} for machines", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The fleet identifies processes by `/proc`, which it cannot read.
    #[error("{} cannot be read", path.display())]
    NoProc {
        /// The unreadable file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl FleetError {
    /// Advice for the operator.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::NoProgram { .. } => "name the program to run",
            Self::NotText { .. } => "name a state directory and programs whose paths are UTF-8",
            Self::Io { .. } => {
                "check that the directory's parent exists and that this user may write in it"
            }
            Self::NoProc { .. } => "the process fleet needs Linux with /proc mounted",
        }
    }
}
