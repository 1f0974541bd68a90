//! The test EC2 as a child process: moto behind our package `crates/aws/tests/ec2`, which its
//! `README.md` describes.
//!
//! Not here: changing it while it runs ([`Admin`]).

mod admin;

use std::ffi::OsString;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

pub use admin::{Admin, Delays, Ground, Refusal, Rule};

use crate::emulator::{Emulator, find, missing};

/// The directory of the package.
const HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../aws/tests");

/// How to start a test EC2.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether its clock is the real one; otherwise only [`Admin::advance`] moves it.
    pub real_clock: bool,
    /// The command that plays an instance's machine; with an empty command instances run nothing.
    /// It does not run in the caller's directory.
    pub hook: Vec<OsString>,
    /// An existing directory for the hook's output, a file for each instance; without it the server
    /// drops the output.
    pub logs: Option<PathBuf>,
    /// Environment variables that the hook gets besides the server's own.
    pub environment: Vec<(OsString, OsString)>,
}

/// The test EC2. It also plays the other services that moto plays, IAM and STS for example.
///
/// Settings apply to the whole server: a test that changes them has a server of its own, or takes
/// turns with other tests and calls [`Admin::reset`] between them.
#[derive(Debug)]
pub struct Ec2 {
    emulator: Emulator,
    admin: Admin,
}

impl Ec2 {
    /// Starts it on a free port of loopback and waits until it answers, which blocks the thread for
    /// about two seconds. `BULLPEN_EC2` names its Python; otherwise it is the gate's, in the cache.
    ///
    /// moto writes its errors to this process's standard error.
    pub fn start(options: &Options) -> io::Result<Self> {
        let python = find("BULLPEN_EC2", "moto-", Path::new("bin/python"))
            .ok_or_else(|| missing("moto not found; `cargo xtask tools` installs it, once"))?;
        let logs = options.logs.as_ref().map(std::path::absolute).transpose()?;
        let command = |port: u16, scratch: &Path| {
            let mut command = Command::new(&python);
            // The hook keeps the files of its machines here; dropping the server removes them.
            command.env("BULLPEN_MACHINES", scratch.join("machines"));
            // `-B`: Python writes no bytecode beside the sources.
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

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.emulator.address
    }

    /// The endpoint for a client.
    pub fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The admin API, which changes settings.
    pub fn admin(&self) -> &Admin {
        &self.admin
    }
}
