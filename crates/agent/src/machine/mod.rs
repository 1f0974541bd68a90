//! Runs the agent on a machine.
//!
//! A *machine* is a directory; in the process fleet `<state>/machines/<instance id>/`. The fleet
//! writes [`USER_DATA`] and starts the agent with the directory. The agent owns `agent/` in it. To
//! end the machine earlier it writes [`ENDS_BY`], which the process fleet's supervisor obeys, or on
//! EC2 arms [`PowerOff`]. The mailbox's key is the instance id or contains it. Processes carry
//! [`mark`] in their environment, those of the warm-up `<mark>/warm-up/<step>`.
//!
//! Not here: starting, supervising and ending machines (the fleet), the agent's loop
//! ([`crate::agent`]), or connecting to mailboxes (the binary gives a [`MailboxConnector`]).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

mod download;
mod guard;
mod host;
mod install;
mod isolation;
mod live;
mod power_off;
mod user_data;
mod watchdog;

pub use download::FETCH;
pub use isolation::{Isolation, Limits};
pub use live::{
    LiveError, MachineBearings, MailboxConnector, live, mailbox_place, on_a_runtime, run,
    terminations,
};
pub use power_off::PowerOff;
pub use user_data::{
    BadUserData, INSTANCE, MailboxPlace, Numbers, RunnerProgram, UserData, WarmUpScripts,
};
pub use watchdog::FileWatchdog;

/// The file in the machine's directory with the fleet's settings for it.
pub const USER_DATA: &str = "user-data";
/// The file in the machine's directory with the latest time of its end, in RFC 3339. A writer
/// replaces it atomically, and only by an earlier time.
pub const ENDS_BY: &str = "ends-by";

/// The mark of the processes of the machine in this directory: its canonical path. The fleet and
/// the agent both use this function.
pub fn mark(dir: &Path) -> io::Result<String> {
    let path = fs::canonicalize(dir)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path is not text"))
}

/// The paths in a machine's directory.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    dir: PathBuf,
}

impl Layout {
    fn of(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn user_data(&self) -> PathBuf {
        self.dir.join(USER_DATA)
    }

    fn ends_by(&self) -> PathBuf {
        self.dir.join(ENDS_BY)
    }

    fn agent(&self, name: &str) -> PathBuf {
        self.dir.join("agent").join(name)
    }

    /// The runner program's directory.
    fn runner(&self) -> PathBuf {
        self.agent("runner")
    }

    /// The jobs' work directory, as a JIT configuration names it. `agent/work` is a link to it.
    fn work(&self) -> PathBuf {
        self.runner().join("_work")
    }

    fn temp(&self) -> PathBuf {
        self.agent("temp")
    }

    fn state(&self) -> PathBuf {
        self.agent("state")
    }

    /// The scripts' home if they must not use the jobs' home.
    fn scripts_home(&self) -> PathBuf {
        self.agent("home")
    }

    fn logs(&self) -> PathBuf {
        self.agent("logs")
    }
}
