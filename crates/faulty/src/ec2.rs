//! The test EC2 as a child process: moto behind a package of ours, `crates/aws/tests/ec2`, whose
//! `README.md` says what it does.
//!
//! Not here: what it is told while it runs ([`Admin`]).

mod admin;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use admin::{Admin, Delays, Ground, Refusal, Rule};

use crate::emulator::{Emulator, find, missing};

/// Where the package is.
const HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../aws/tests");

/// How a test EC2 is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether its time is the real one; else it moves when it is told.
    pub real_clock: bool,
    /// The command that plays what runs on an instance; nothing runs if it is empty. Its directory is
    /// not the caller's.
    pub hook: Vec<OsString>,
    /// Where the hook's output goes, a file for each instance; nowhere if it is not said. It has to be
    /// there.
    pub logs: Option<PathBuf>,
    /// Variables that the hook has besides ours.
    pub environment: Vec<(OsString, OsString)>,
}

/// The test EC2. It also plays what moto plays of AWS beside it, IAM and STS for example.
///
/// Its settings are of the whole server: tests that need some have a server of their own, or one after
/// the other with [`Admin::reset`] between them.
#[derive(Debug)]
pub struct Ec2 {
    emulator: Emulator,
    admin: Admin,
}

impl Ec2 {
    /// Starts it on a free port of loopback and waits until it answers. Its Python is found by
    /// `BULLPEN_EC2` or in the gate's cache. It blocks the thread, for two seconds or so.
    ///
    /// What moto trips over is told on the standard error of this process.
    pub fn start(options: &Options) -> io::Result<Self> {
        let python = find("BULLPEN_EC2", "moto-", Path::new("bin/python")).ok_or_else(|| {
            missing("the test EC2's moto is not there; `cargo xtask tools` installs it, once")
        })?;
        let logs = options.logs.as_ref().map(std::path::absolute).transpose()?;
        let command = |port: u16, scratch: &Path| {
            let mut command = Command::new(&python);
            // A hook that keeps something of its machines keeps it there, and it goes with the server.
            command.env("BULLPEN_MACHINES", scratch.join("machines"));
            // `-B`: nothing is written beside the sources.
            command.args(["-B", "-m", "ec2", "--port", &port.to_string()]).current_dir(HOME);
            command.args(["--clock", if options.real_clock { "real" } else { "by-hand" }]);
            if let Some(logs) = &logs {
                command.arg("--logs").arg(logs);
            }
            command.arg("--").args(&options.hook);
            command.envs(options.environment.iter().cloned());
            command
        };
        let emulator = Emulator::start(command, "/_bullpen")?;
        let admin = Admin::at(emulator.address);
        Ok(Self { emulator, admin })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.emulator.address
    }

    /// The endpoint to give a client.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// What it can be told.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }
}
