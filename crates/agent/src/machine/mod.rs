//! The agent on a machine: from a directory to a life.
//!
//! A *machine* is a directory; in the process fleet it is `<state>/machines/<instance id>/`. Who makes
//! the machine writes [`USER_DATA`] and starts the agent with the directory; the agent owns `agent/`
//! in it, and may write an earlier end of the machine into [`ENDS_BY`], which the process fleet's
//! supervisor obeys; on EC2 it arms [`PowerOff`]. The machine's id is the key of its mailbox, or a
//! part of it; in the process fleet it is the directory's name. Its processes carry [`mark`], and
//! those of its warm-up `<mark>/warm-up/<step>`, in their environment.
//!
//! Not here: starting, supervising and ending machines (the fleet), the agent's life itself
//! ([`crate::agent`]), or a way to mailboxes ([`MailboxConnector`] is the engine's to give).

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

/// What the fleet tells a machine, in its directory.
pub const USER_DATA: &str = "user-data";
/// When a machine ends at the latest, in its directory; RFC 3339. Only ever replaced by an earlier
/// time, as a whole.
pub const ENDS_BY: &str = "ends-by";

/// What marks the processes of the machine in this directory: its canonical path. Fleet and agent
/// both take it from here.
pub fn mark(dir: &Path) -> io::Result<String> {
    let path = fs::canonicalize(dir)?;
    path.into_os_string()
        .into_string()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the path is not text"))
}

/// Where things are in a machine's directory.
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

    /// Where jobs work: a JIT configuration says that it is there. `agent/work` leads to it.
    fn work(&self) -> PathBuf {
        self.runner().join("_work")
    }

    fn temp(&self) -> PathBuf {
        self.agent("temp")
    }

    fn state(&self) -> PathBuf {
        self.agent("state")
    }

    /// The home of scripts where that of jobs is nothing for them.
    fn scripts_home(&self) -> PathBuf {
        self.agent("home")
    }

    fn logs(&self) -> PathBuf {
        self.agent("logs")
    }
}
