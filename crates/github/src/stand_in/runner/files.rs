//! The registration's files in the program's directory: `.runner` and `.credentials`.
//!
//! Not here: how a registration comes to be (`configure`).

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bullpen_core::mailbox::Secret;
use serde_json::{Value, json};

use super::Failed;

const SETTINGS: &str = ".runner";
const CREDENTIALS: &str = ".credentials";
const ALL: &[&str] = &[SETTINGS, CREDENTIALS, ".credentials_rsaparams"];

/// What a registered runner is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunnerSettings {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) ephemeral: bool,
    /// The base of the protocol.
    pub(super) server: String,
    /// What it was registered with; a JIT configuration does not say.
    pub(super) github: Option<String>,
    pub(super) work: PathBuf,
}

pub(super) fn is_configured(root: &Path) -> bool {
    root.join(SETTINGS).exists()
}

impl RunnerSettings {
    pub(super) fn load(root: &Path) -> Result<Self, Failed> {
        let not_configured = "An error occurred: Not configured. Run config.(sh/cmd) to configure \
                              the runner.";
        let text = fs::read_to_string(root.join(SETTINGS))
            .map_err(|_| Failed::for_good(not_configured))?;
        let broken = || Failed::for_good("An error occurred: .runner is not as it should be.");
        let json: Value = serde_json::from_str(&text).map_err(|_| broken())?;
        Self::from_json(&json).ok_or_else(broken)
    }

    /// Numbers and flags are text in a JIT configuration.
    fn from_json(json: &Value) -> Option<Self> {
        let text = |key: &str| match json.get(key)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        };
        Some(Self {
            id: text("AgentId")?.parse().ok()?,
            name: text("AgentName")?,
            ephemeral: text("Ephemeral").is_some_and(|text| text.eq_ignore_ascii_case("true")),
            server: text("ServerUrl")?,
            github: text("GitHubUrl").filter(|url| !url.is_empty()),
            work: text("WorkFolder")?.into(),
        })
    }

    /// Writes a registration, with the session that goes with it.
    pub(super) fn save(&self, root: &Path, session: &Secret) -> io::Result<()> {
        let settings = json!({
            "AgentId": self.id,
            "AgentName": self.name,
            "DisableUpdate": true,
            "Ephemeral": self.ephemeral,
            "PoolId": 1,
            "PoolName": "Default",
            "ServerUrl": self.server,
            "GitHubUrl": self.github,
            "WorkFolder": self.work,
        });
        let credentials = json!({"Scheme": "OAuth", "Data": {"Session": session.reveal()}});
        write(&root.join(CREDENTIALS), credentials.to_string().as_bytes())?;
        write(&root.join(SETTINGS), settings.to_string().as_bytes())
    }
}

/// The session of a configured runner.
pub(super) fn session(root: &Path) -> Result<Secret, Failed> {
    let text = fs::read_to_string(root.join(CREDENTIALS))?;
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    let session = json["Data"]["Session"].as_str().map(Secret::new);
    session.ok_or_else(|| Failed::for_good("An error occurred: .credentials holds no session."))
}

/// Writes the files that a JIT configuration holds.
pub(super) fn unpack(root: &Path, jit: &Secret) -> Result<(), Failed> {
    let bad = || Failed::for_good("An error occurred: the JIT configuration cannot be read.");
    let decoded = |text: &str| BASE64_STANDARD.decode(text).map_err(|_| bad());
    let files: BTreeMap<String, String> =
        serde_json::from_slice(&decoded(jit.reveal())?).map_err(|_| bad())?;
    for (name, content) in files {
        if !ALL.contains(&name.as_str()) {
            return Err(bad());
        }
        write(&root.join(name), &decoded(&content)?)?;
    }
    Ok(())
}

/// Removes the files; a missing file is fine.
pub(super) fn forget(root: &Path) -> io::Result<()> {
    for name in ALL {
        match fs::remove_file(root.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Readable by their owner only.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(content)
}
