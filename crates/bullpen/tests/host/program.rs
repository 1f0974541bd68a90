//! A process of the built command, which ends with its test.
//! Not here: its arguments.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::waiting::until;

/// A running command, with its output in a file.
pub(crate) struct Program {
    child: Child,
    output: PathBuf,
}

impl Program {
    pub(crate) fn start(
        arguments: &[&str],
        directory: &Path,
        environment: &BTreeMap<String, String>,
        output: &Path,
    ) -> Self {
        let file = File::create(output).expect("the output can be written");
        let child = Command::new(env!("CARGO_BIN_EXE_bullpen"))
            .args(arguments)
            .current_dir(directory)
            .env_clear()
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("it can be shared"))
            .stderr(file)
            .spawn()
            .expect("the command runs");
        Self { child, output: output.to_owned() }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Waits until its output has these words.
    pub(crate) async fn says(&mut self, words: &str) -> String {
        until(&format!("{words:?}"), async || {
            let said = self.said();
            let over = self.child.try_wait().expect("it is our child");
            assert!(over.is_none() || self.said().contains(words), "it ended, and said: {said}");
            said.contains(words).then_some(said)
        })
        .await
    }

    /// Waits for its end.
    pub(crate) async fn ends(&mut self) -> Option<i32> {
        let status = until("end", async || self.child.try_wait().expect("it is our child")).await;
        status.code()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("process ids are small");
        let pid = Pid::from_raw(pid).expect("it is not zero");
        kill_process(pid, signal).expect("it is our child");
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
