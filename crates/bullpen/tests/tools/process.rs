//! One process of the built command, which ends with its test, and waits with a limit.
//!
//! Not here: the world it runs in (`world`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::waiting::{PATIENCE, until};

/// The program under test.
pub(crate) fn built() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_bullpen"))
}

/// Waits for a future with the limit of all waits.
pub(crate) async fn within<T>(what: &str, comes: impl Future<Output = T>) -> T {
    let came = tokio::time::timeout(PATIENCE, comes).await;
    came.unwrap_or_else(|_| panic!("no {what} within {PATIENCE:?}"))
}

/// Lets some time pass: only to sample moments, never to wait for an event.
pub(crate) async fn pass(time: Duration) {
    SystemClock::new().sleep(time).await;
}

/// A running command, with its output in files. It ends with its test.
pub(crate) struct Process {
    pub(crate) child: Child,
    line: String,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts a program with these arguments, separated by white space, as this user; its output goes
    /// beside `output`.
    pub(crate) fn start(
        program: &Path,
        user: Option<u32>,
        line: &str,
        environment: &BTreeMap<String, String>,
        output: &Path,
    ) -> Self {
        let (stdout, stderr) = (output.with_extension("out"), output.with_extension("err"));
        let file = |path: &Path| File::create(path).expect("the output can be written");
        let mut command = Command::new(program);
        if let Some(id) = user {
            command = Command::new("setpriv");
            command.args([format!("--reuid={id}"), format!("--regid={id}")]);
            command.arg("--clear-groups").arg(program);
        }
        let child = command
            .args(line.split_whitespace())
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(file(&stdout))
            .stderr(file(&stderr))
            .spawn()
            .expect("the command runs");
        Self { child, line: line.to_owned(), stdout, stderr }
    }

    /// Its standard error so far.
    pub(crate) fn talk(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// The first line of its standard output, once that is complete.
    pub(crate) async fn first_line(&mut self) -> String {
        let what = format!("word of {}", self.line);
        until(&what, async || {
            let data = fs::read_to_string(&self.stdout).unwrap_or_default();
            let line = data.split_once('\n').map(|(line, _)| line.to_owned());
            let over = self.child.try_wait().expect("it is our child");
            assert!(line.is_some() || over.is_none(), "{} ended: {}", self.line, self.talk());
            line
        })
        .await
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // A process that has ended, but was not waited for, accepts the signal without effect.
        kill_process(self.pid(), signal).expect("it is ours");
    }

    fn pid(&self) -> Pid {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        Pid::from_raw(pid).expect("it is not zero")
    }

    pub(crate) async fn ends(mut self) -> Ran {
        let what = format!("end of {}", self.line);
        let status = until(&what, async || self.child.try_wait().expect("it is our child")).await;
        self.ran(status.code())
    }

    /// Waits for the end without a runtime, for `drop`.
    pub(crate) fn ends_blocking(mut self) -> Ran {
        let status = self.child.wait().expect("it is our child");
        self.ran(status.code())
    }

    fn ran(&self, code: Option<i32>) -> Ran {
        let data = fs::read_to_string(&self.stdout).expect("its output is there");
        Ran { line: self.line.clone(), code, data, talk: self.talk() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    line: String,
    /// None if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) data: String,
    pub(crate) talk: String,
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        self.exits(0);
        serde_json::from_str(&self.data)
            .unwrap_or_else(|_| panic!("no JSON of {}: {self:#?}", self.line))
    }
}
