//! The settings that the fleet gives a machine at launch, as versioned JSON.
//!
//! They are a plain file that outlives processes, so they never contain a secret: credentials come
//! through the mailbox.
//!
//! Not here: how the agent uses them (`live`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bullpen_core::class::Scripts;
use bullpen_core::download::Download;
use bullpen_core::ids::MailboxKey;
use bullpen_core::limits::Limits;
use serde::{Deserialize, Serialize};

use super::Isolation;

/// The `PATH` if the user data has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The settings of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserData {
    /// Where the mailboxes are.
    pub mailbox: MailboxPlace,
    /// The address of the organisation or repository where runners register by token.
    pub url: String,
    /// The runner program.
    pub runner: RunnerProgram,
    /// The warm-up's scripts.
    #[serde(default)]
    pub scripts: WarmUpScripts,
    /// The agent's numbers.
    #[serde(default)]
    pub numbers: Numbers,
    /// The environment of scripts and jobs; the agent adds nothing of its own environment. `PATH`,
    /// `HOME` and `LANG` have defaults. The agent empties the default `HOME` between owners, so
    /// scripts must prepare files for jobs elsewhere, or the operator sets `HOME`.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The Unix user of the runner and its jobs, whose files and processes the agent removes
    /// between owners. Scripts run as the agent's user. Absent: everything runs as the agent's
    /// user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether that user may become root. Then the agent reuses the machine only if root changed
    /// nothing since the warm-up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sudo: bool,
    /// Whether users other than root may read the instance's metadata, which has its credentials.
    /// Otherwise an instance that cannot prevent that takes no jobs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub metadata_open: bool,
    /// How the agent keeps jobs from a host that they share with the service. Absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
}

/// Where the mailboxes are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum MailboxPlace {
    /// In a file on this host.
    File(PathBuf),
    /// In DynamoDB, with the usual AWS configuration of the agent's process.
    DynamoDb {
        /// The stack that owns the table.
        dynamodb: String,
        /// The region; absent, the usual configuration's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        region: Option<String>,
        /// The template of the mailbox's key, with [`INSTANCE`] in place of the instance's id;
        /// absent, the key is that id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
}

/// The placeholder of the instance's id in a template of mailbox keys.
pub const INSTANCE: &str = "{instance}";

impl MailboxPlace {
    /// The key of the mailbox of this instance.
    pub fn key(&self, instance: &str) -> MailboxKey {
        match self {
            Self::DynamoDb { key: Some(template), .. } => {
                MailboxKey::new(template.replace(INSTANCE, instance))
            }
            Self::DynamoDb { key: None, .. } | Self::File(_) => MailboxKey::new(instance),
        }
    }
}

/// Where the runner program comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum RunnerProgram {
    /// An unpacked official runner; every machine gets its own directory with the same files.
    Directory(PathBuf),
    /// A program with the official runner's contract: this command with the official arguments, in
    /// its own directory.
    StandIn {
        /// The program and its first arguments.
        command: Vec<String>,
    },
    /// An official runner at a fixed place of the machine's image. If the image has none, the agent
    /// downloads it to that place, once.
    Image {
        /// Its directory.
        directory: PathBuf,
        /// Where to download its archive (tar with gzip).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        download: Option<Download>,
    },
}

/// The scripts that warm a machine up, in the order they run. Each is bash, or the address to fetch
/// it from (`bullpen_core::download`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmUpScripts {
    /// The image's script; runs once per machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_preinstall: Option<String>,
    /// Runs once per machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preinstall: Option<String>,
    /// The image's script; runs at each boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_prerun: Option<String>,
    /// Runs at each boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prerun: Option<String>,
    /// Runs at each boot, after the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_runner: Option<String>,
}

/// The stack's numbers that an agent needs, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Numbers {
    /// How long the warm-up may take.
    pub warm_up_ms: u64,
    /// How often the agent sends a heartbeat.
    pub heartbeat_ms: u64,
    /// How far two clocks may differ.
    pub clock_skew_ms: u64,
}

impl From<&Limits> for Numbers {
    fn from(limits: &Limits) -> Self {
        let millis = |wait: Duration| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Self {
            warm_up_ms: millis(limits.warm_up),
            heartbeat_ms: millis(limits.heartbeat),
            clock_skew_ms: millis(limits.clock_skew),
        }
    }
}

impl Default for Numbers {
    fn default() -> Self {
        Self::from(&Limits::DEFAULT)
    }
}

/// The stored form with a version: the file outlives the program that wrote it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Stored {
    #[serde(rename = "1")]
    V1(UserData),
}

/// Text that this program cannot read as user data.
#[derive(Debug, thiserror::Error)]
#[error("the user data cannot be read")]
pub struct BadUserData(#[source] serde_json::Error);

impl UserData {
    /// User data without scripts and with the default numbers.
    pub fn new(mailbox: PathBuf, url: String, runner: RunnerProgram) -> Self {
        Self {
            mailbox: MailboxPlace::File(mailbox),
            url,
            runner,
            scripts: WarmUpScripts::default(),
            numbers: Numbers::default(),
            environment: BTreeMap::new(),
            user: None,
            sudo: false,
            metadata_open: false,
            isolation: None,
        }
    }

    /// The user data of a machine of a class: the class's scripts replace those for all machines.
    #[must_use]
    pub fn of_class(mut self, scripts: &Scripts) -> Self {
        let Scripts { image_preinstall, preinstall, image_prerun, prerun } = scripts.clone();
        let all = self.scripts;
        self.scripts = WarmUpScripts {
            image_preinstall: image_preinstall.or(all.image_preinstall),
            preinstall: preinstall.or(all.preinstall),
            image_prerun: image_prerun.or(all.image_prerun),
            prerun: prerun.or(all.prerun),
            pre_runner: all.pre_runner,
        };
        self
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(&Stored::V1(self.clone()))
            .expect("the configuration refuses paths that are not text")
    }

    /// Reads the file's text.
    pub fn from_text(text: &str) -> Result<Self, BadUserData> {
        let Stored::V1(data) = serde_json::from_str(text).map_err(BadUserData)?;
        Ok(data)
    }

    /// The stack's numbers as an agent needs them.
    pub(super) fn limits(&self) -> Limits {
        let Numbers { warm_up_ms, heartbeat_ms, clock_skew_ms } = self.numbers;
        Limits {
            warm_up: Duration::from_millis(warm_up_ms),
            heartbeat: Duration::from_millis(heartbeat_ms),
            clock_skew: Duration::from_millis(clock_skew_ms),
            ..Limits::DEFAULT
        }
    }

    /// The whole environment of scripts or jobs, with this home if none is configured.
    pub(super) fn environment(&self, home: &Path) -> BTreeMap<String, String> {
        let home = home.to_string_lossy();
        let own = [("PATH", PATH), ("HOME", &*home), ("LANG", "C.UTF-8")];
        let mut environment: BTreeMap<String, String> =
            own.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        environment.extend(self.environment.clone());
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 1 as it was first written.
    const V1: &str = r#"{"v":"1","mailbox":"/s/mailbox.db","url":"https://github.com/acme",
        "runner":{"stand-in":{"command":["bullpen","stand-in-runner"]}},
        "scripts":{"preinstall":"a","pre_runner":"b"},
        "numbers":{"warm_up_ms":1,"heartbeat_ms":2,"clock_skew_ms":3},"environment":{"A":"b"}}"#;

    #[test]
    fn version_one_keeps_parsing() {
        let data = UserData::from_text(V1).unwrap();
        assert_eq!(data.scripts.pre_runner.as_deref(), Some("b"));
        assert_eq!(data.limits().heartbeat, Duration::from_millis(2));
        assert_eq!(UserData::from_text(&data.to_text()).unwrap(), data);
    }

    #[test]
    fn little_is_needed_and_nothing_unknown_is_taken() {
        let text = r#"{"v":"1","mailbox":"m","url":"u","runner":{"directory":"/opt/runner"}}"#;
        let data = UserData::from_text(text).unwrap();
        assert_eq!(data.limits(), Limits::DEFAULT);
        let typo = text.replace("\"url\"", "\"secret\":1,\"url\"");
        UserData::from_text(&typo).unwrap_err();
        UserData::from_text(&text.replace("\"1\"", "\"2\"")).unwrap_err();
    }

    #[test]
    fn an_instance_is_told_where_its_mailbox_is_and_who_jobs_are() {
        let text = r#"{"v":"1","mailbox":{"dynamodb":"acme","region":"eu-west-1",
            "key":"AROAEXAMPLEID:{instance}"},"url":"u","user":"runner","sudo":true,
            "runner":{"image":{"directory":"/opt/runner",
            "download":{"url":"https://example.com/r.tar.gz","sha256":"ab"}}}}"#;
        let data = UserData::from_text(text).unwrap();
        let download = Download { url: "https://example.com/r.tar.gz".into(), sha256: "ab".into() };
        assert_eq!(
            data.runner,
            RunnerProgram::Image { directory: "/opt/runner".into(), download: Some(download) }
        );
        assert!(data.sudo && data.user.as_deref() == Some("runner"));
        let MailboxPlace::DynamoDb { region, key, .. } = &data.mailbox else { panic!("{data:?}") };
        assert_eq!(region.as_deref(), Some("eu-west-1"));
        assert_eq!(key.as_deref(), Some("AROAEXAMPLEID:{instance}"));
        assert_eq!(data.mailbox.key("i-1"), MailboxKey::new("AROAEXAMPLEID:i-1"));
        assert_eq!(MailboxPlace::File("m".into()).key("i-1"), MailboxKey::new("i-1"));
        assert_eq!(UserData::from_text(&data.to_text()).unwrap(), data);
    }

    #[test]
    fn what_is_not_said_is_not_written() {
        let place = r#"{"dynamodb":"acme"}"#;
        let text =
            format!(r#"{{"v":"1","mailbox":{place},"url":"u","runner":{{"directory":"/r"}}}}"#);
        let data = UserData::from_text(&text).unwrap();
        assert_eq!(serde_json::to_string(&data.mailbox).unwrap(), place);
        assert!(!data.sudo && !data.to_text().contains("user"));
    }

    #[test]
    fn what_a_class_says_is_told_beside_what_all_machines_are_told() {
        let data = UserData::from_text(V1).unwrap();
        assert_eq!(data.clone().of_class(&Scripts::default()), data);
        let text = |text: &str| Some(text.to_owned());
        let scripts =
            Scripts { image_prerun: text("i"), preinstall: text("c"), ..Scripts::default() };
        let told = data.of_class(&scripts).scripts;
        let expected = WarmUpScripts {
            image_prerun: text("i"),
            preinstall: text("c"),
            pre_runner: text("b"),
            ..WarmUpScripts::default()
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn the_environment_is_small_and_what_is_given_wins() {
        let runner = RunnerProgram::Directory("/opt/runner".into());
        let mut data = UserData::new("m".into(), "u".into(), runner);
        data.environment.insert("HOME".into(), "/home/runner".into());
        let environment = data.environment(Path::new("/machine/temp"));
        assert_eq!(environment.keys().collect::<Vec<_>>(), ["HOME", "LANG", "PATH"]);
        assert_eq!(environment["HOME"], "/home/runner");
    }
}
