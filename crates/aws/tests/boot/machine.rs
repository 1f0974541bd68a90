//! One machine: the launch hook boots it as the test EC2 would, and the tests examine it when it is
//! off.
//!
//! Not here: what the machine plays (`tests/machine`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_smithy_types::base64;
use bullpen_aws::boot::{BootPlan, render};
use tempfile::TempDir;

use crate::web::python;

/// The longest time from boot to power-off; only a failing test takes this long.
const WITHIN_SECONDS: u32 = 120;
const AGENT: &str = "opt/bullpen/bullpen-agent";
const NAME: &str = "i-0";

pub(crate) struct Machine {
    directory: TempDir,
    environment: Vec<(String, String)>,
    within_seconds: u32,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["image", "machines"] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        Self { directory, environment: Vec::new(), within_seconds: WITHIN_SECONDS }
    }

    /// A machine whose image has this agent.
    pub(crate) fn with_agent(agent: &str) -> Self {
        Self::new().with_file(AGENT, agent)
    }

    /// Adds a file to the image.
    pub(crate) fn with_file(self, path: &str, text: &str) -> Self {
        let path = self.directory.path().join("image").join(path);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        self
    }

    /// Adds a variable to the environment of the machine's programs.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the longest time from boot to power-off.
    pub(crate) fn within_seconds(self, seconds: u32) -> Self {
        Self { within_seconds: seconds, ..self }
    }

    /// Boots the machine, waits until it is off, and returns its console.
    pub(crate) fn boot(&self, plan: &BootPlan) -> String {
        let script = render(plan).expect("small enough");
        let hook = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machine/hook");
        let output = Command::new("timeout")
            .args(["--signal=KILL", &self.within_seconds.to_string()])
            .arg(hook)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("BULLPEN_EC2", python())
            .env("EC2_INSTANCE_ID", NAME)
            .env("EC2_USER_DATA", base64::encode(script))
            .env("BULLPEN_MACHINES", self.directory.path().join("machines"))
            .env("BULLPEN_IMAGE", self.directory.path().join("image"))
            .output()
            .expect("timeout");
        let console = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {console}", output.status);
        console
    }

    /// The machine's journal, without the line for the script's end, which may be anywhere in it.
    pub(crate) fn journal(&self) -> Vec<String> {
        let path = self.directory.path().join("machines").join(NAME).join("journal");
        let text = fs::read_to_string(path).expect("a journal");
        let lines = text.lines().filter(|line| !line.starts_with("user data end"));
        lines.map(str::to_owned).collect()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.directory.path().join("machines").join(NAME).join("root").join(path)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).expect("a file")
    }

    pub(crate) fn agent(&self) -> Option<String> {
        fs::read_to_string(self.path(AGENT)).ok()
    }
}
