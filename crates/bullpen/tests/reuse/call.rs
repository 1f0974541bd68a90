//! One call of the built command: its arguments, start, signals and end.
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

use crate::waiting::until;

/// Lets some time pass: only to sample moments, never to wait for an event.
pub(crate) async fn pass(time: Duration) {
    SystemClock::new().sleep(time).await;
}

/// A command that is not started yet.
pub(crate) struct Call {
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    output: PathBuf,
}

impl Call {
    pub(crate) fn new(line: &str, environment: &BTreeMap<String, String>, output: &Path) -> Self {
        Self {
            arguments: line.split_whitespace().map(str::to_owned).collect(),
            environment: environment.clone(),
            output: output.to_owned(),
        }
    }

    /// With one more argument, which may have white space in it.
    pub(crate) fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.environment.remove(name).expect("it was there");
        self
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bullpen"));
        command.args(&self.arguments).env_clear().envs(&self.environment).stdin(Stdio::null());
        command
    }

    pub(crate) fn start(self) -> Running {
        let file = |name| {
            let path = self.output.with_extension(name);
            (File::create(&path).expect("the output can be written"), path)
        };
        let ((data, stdout), (talk, stderr)) = (file("out"), file("err"));
        let child = self.command().stdout(data).stderr(talk).spawn().expect("the command runs");
        let line = self.arguments.join(" ");
        Running { child, line, stdout, stderr, clock: SystemClock::new() }
    }

    pub(crate) async fn run(self) -> Ran {
        self.start().ends().await
    }

    /// Runs the command without a runtime, for `drop`.
    pub(crate) fn run_blocking(self) -> Ran {
        let done = self.command().output().expect("the command runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        Ran {
            line: self.arguments.join(" "),
            code: done.status.code(),
            data: text(done.stdout),
            talk: text(done.stderr),
            took: Duration::ZERO,
        }
    }
}

/// A running command, with its output in files. It ends with its test.
pub(crate) struct Running {
    child: Child,
    line: String,
    stdout: PathBuf,
    stderr: PathBuf,
    clock: SystemClock,
}

impl Running {
    /// Its standard error so far.
    pub(crate) fn talk(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits until its standard error has these words.
    pub(crate) async fn tells(&mut self, words: &str) {
        until(&format!("{words:?} of {}", self.line), async || {
            let over = self.child.try_wait().expect("it is our child").is_some();
            let talk = self.talk();
            assert!(!over || talk.contains(words), "{} ended, and said: {talk}", self.line);
            talk.contains(words).then_some(())
        })
        .await;
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        // A process that has ended, but was not waited for, accepts the signal without effect.
        kill_process(Pid::from_raw(pid).expect("it is not zero"), signal).expect("it is ours");
    }

    pub(crate) async fn ends(mut self) -> Ran {
        let what = format!("end of {}", self.line);
        let status = until(&what, async || self.child.try_wait().expect("it is our child")).await;
        Ran {
            line: self.line.clone(),
            code: status.code(),
            data: fs::read_to_string(&self.stdout).expect("its output is there"),
            talk: self.talk(),
            took: self.clock.monotonic(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) line: String,
    /// None if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) data: String,
    pub(crate) talk: String,
    pub(crate) took: Duration,
}

impl Ran {
    #[track_caller]
    pub(crate) fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Asserts that it failed with one line that has these words.
    #[track_caller]
    pub(crate) fn says(&self, words: &str) -> &Self {
        let error = self.talk.lines().find(|line| line.starts_with("error: "));
        assert!(error.is_some_and(|line| line.contains(words)), "no {words:?} in {self:#?}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        self.exits(0);
        serde_json::from_str(&self.data)
            .unwrap_or_else(|_| panic!("no JSON of {}: {self:#?}", self.line))
    }
}
