//! One call of the built command, to its end.
//!
//! Not here: the account that it is about.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::waiting::until;

/// Runs the command with these words between white space; its output goes beside `output`. The test goes on
/// meanwhile: what the command speaks to may be in it.
pub(crate) async fn run(line: &str, environment: &BTreeMap<String, String>, output: &Path) -> Ran {
    let (stdout, stderr) = (output.with_extension("out"), output.with_extension("err"));
    let file = |path: &Path| File::create(path).expect("the output can be written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_bullpen"))
        .args(line.split_whitespace())
        .env_clear()
        .envs(environment)
        .stdin(Stdio::null())
        .stdout(file(&stdout))
        .stderr(file(&stderr))
        .spawn()
        .expect("the command runs");
    let what = format!("end of {line}");
    let status = until(&what, async || child.try_wait().expect("it is our child")).await;
    let text = |path: &Path| fs::read_to_string(path).expect("its output is there");
    Ran { line: line.to_owned(), code: status.code(), data: text(&stdout), talk: text(&stderr) }
}

/// A command that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    line: String,
    /// None if a signal ended it.
    code: Option<i32>,
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
