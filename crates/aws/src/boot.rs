//! The boot script: an instance's user data, which cloud-init runs once, at the first boot.
//!
//! In order: the *watchdog*, a timer that powers the machine off after every boot; the user that
//! jobs run as; the agent, from the image or downloaded; the *payload*, which the agent reads; the
//! agent's unit. If a step fails, the machine prints why on its console and powers off. Later boots
//! start the units only: cloud-init does not run the script again.
//!
//! Not here: downloads, and the contents and use of the payload (`bullpen_agent::machine`).

use std::time::Duration;

use bullpen_agent::machine::FETCH;
use bullpen_core::download::Download;

/// The most bytes of user data that EC2 accepts, before base64.
pub const USER_DATA_BYTES_MAX: usize = 16_384;

/// How long a download is retried. Long enough for a network and a role that come up late; a
/// machine without its agent costs money and runs no job.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The script, with comments and with marks where the plan goes.
const TEMPLATE: &str = include_str!("boot/boot.sh");
const PLAN_MARK: &str = "@plan@";
const FETCH_MARK: &str = "@fetch@";
const PAYLOAD_MARK: &str = "@payload@";

/// The parameters of an instance's first boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootPlan {
    /// When the watchdog powers the machine off, counted from each boot; in whole seconds.
    pub watchdog: Duration,
    /// How long each download is retried, usually [`PATIENCE`]; in whole seconds.
    pub patience: Duration,
    /// Where the machine downloads the agent from. Without it the machine runs the image's agent.
    pub agent: Option<Download>,
    /// The system user that jobs run as. The script creates it if the image does not have it.
    pub user: Option<String>,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether that user may use the image's container engine, if there is one. Access to the
    /// engine is as good as root.
    pub docker: bool,
    /// The file that the agent finds in its machine directory, byte for byte. Like all JSON it has
    /// no NUL.
    pub payload: String,
}

/// User data that EC2 would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the user data have {bytes} bytes, {} more than EC2 takes ({USER_DATA_BYTES_MAX}); \
     put a long script of the runner or image where machines can fetch it, and write its address \
     in its place: `https://host/path#sha256=…`, or `s3://bucket/key#sha256=…`",
    bytes - USER_DATA_BYTES_MAX
)]
pub struct TooLarge {
    /// The size of the rendered script.
    pub bytes: usize,
}

/// Renders the script, not yet base64.
///
/// # Errors
///
/// If it is larger than EC2 accepts.
pub fn render(plan: &BootPlan) -> Result<String, TooLarge> {
    let mut script = String::new();
    for line in without_comments(TEMPLATE) {
        match line {
            PLAN_MARK => script += &variables(plan),
            FETCH_MARK => script += &without_comments(FETCH).collect::<Vec<_>>().join("\n"),
            PAYLOAD_MARK => script += &payload(&plan.payload),
            line => script += line,
        }
        script.push('\n');
    }
    match script.len() {
        bytes if bytes > USER_DATA_BYTES_MAX => Err(TooLarge { bytes }),
        _ => Ok(script),
    }
}

/// The template's lines without comments, empty lines and indentation.
fn without_comments(script: &str) -> impl Iterator<Item = &str> {
    let is_comment = |line: &&str| line.is_empty() || line.starts_with("# ");
    script.lines().map(str::trim_start).filter(move |line| !is_comment(line))
}

/// The plan as shell variables.
fn variables(plan: &BootPlan) -> String {
    let agent = plan.agent.as_ref();
    let quoted = |text: Option<&String>| text.map_or_else(String::new, |text| quoted(text));
    [
        format!("watchdog={}", plan.watchdog.as_secs()),
        format!("patience={}", plan.patience.as_secs()),
        format!("user={}", quoted(plan.user.as_ref())),
        format!("sudo={}", if plan.sudo { "1" } else { "" }),
        format!("docker={}", if plan.docker { "1" } else { "" }),
        format!("agent_url={}", quoted(agent.map(|agent| &agent.url))),
        format!("agent_sha256={}", quoted(agent.map(|agent| &agent.sha256))),
    ]
    .join("\n")
}

/// The lines that write the payload to its file.
fn payload(text: &str) -> String {
    let (end, bytes) = (delimiter(text), text.len());
    // A here-document ends with a newline that is not the payload's: hence the byte count.
    format!("head -c {bytes} >$machine/user-data <<'{end}'\n{text}\n{end}")
}

/// A delimiter that is no line of the text.
fn delimiter(text: &str) -> String {
    let mut end = "END".to_owned();
    while text.split('\n').any(|line| line == end) {
        end.push('_');
    }
    end
}

/// The text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download(url: &str) -> Download {
        Download { url: url.to_owned(), sha256: "0".repeat(64) }
    }

    fn plan(payload: &str) -> BootPlan {
        BootPlan {
            watchdog: Duration::from_secs(3_600),
            patience: PATIENCE,
            agent: None,
            user: None,
            sudo: false,
            docker: false,
            payload: payload.to_owned(),
        }
    }

    #[test]
    fn the_script_is_below_four_kibibytes_without_the_payload() {
        // Linux user names have at most 32 characters; our addresses hold a stack, a version and a
        // machine.
        let url = format!("s3://{}/{}", "b".repeat(63), "k".repeat(200));
        let longest = BootPlan {
            watchdog: Duration::from_secs(u64::from(u32::MAX)),
            agent: Some(download(&url)),
            user: Some("u".repeat(32)),
            sudo: true,
            docker: true,
            ..plan("")
        };
        let bytes = render(&longest).unwrap().len();
        assert!(bytes < 4_096, "{bytes}");
    }

    #[test]
    fn what_ec2_would_refuse_is_an_error_that_says_by_how_much() {
        let bare = render(&plan("")).unwrap().len();
        let digits = "16384".len() - "0".len();
        let fits = USER_DATA_BYTES_MAX - bare - digits;
        assert_eq!(render(&plan(&"x".repeat(fits))).unwrap().len(), USER_DATA_BYTES_MAX);
        let error = render(&plan(&"x".repeat(fits + 7))).unwrap_err();
        assert_eq!(error, TooLarge { bytes: USER_DATA_BYTES_MAX + 7 });
        assert!(error.to_string().contains("16391 bytes, 7 more than EC2 takes"), "{error}");
    }

    #[test]
    fn only_the_first_line_begins_like_a_comment() {
        let script = render(&plan("{}")).unwrap();
        let (first, rest) = script.split_once('\n').unwrap();
        assert_eq!(first, "#!/bin/bash");
        assert!(!rest.contains("\n#"), "{rest}");
        assert!(
            [PLAN_MARK, FETCH_MARK, PAYLOAD_MARK].iter().all(|mark| !rest.contains(mark)),
            "{rest}"
        );
    }

    #[test]
    fn marks_and_comments_in_what_is_given_are_kept() {
        let text = "# not ours\n@plan@\n@payload@\n";
        let script = render(&plan(text)).unwrap();
        assert!(script.contains(&format!("<<'END'\n{text}\nEND\n")), "{script}");
    }

    #[test]
    fn any_text_is_quoted_as_one_word() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        let named = BootPlan { user: Some("'; reboot; '".to_owned()), ..plan("") };
        assert!(render(&named).unwrap().contains(r"user=''\''; reboot; '\'''"));
    }

    #[test]
    fn a_payload_does_not_end_its_own_document() {
        assert_eq!(delimiter("{}"), "END");
        assert_eq!(delimiter("END\nEND_\n"), "END__");
        assert_eq!(delimiter("a\nEND of it"), "END");
    }

    #[test]
    fn the_watchdog_is_armed_before_anything_is_fetched_or_made() {
        let plan = BootPlan { agent: Some(download("https://a/b")), ..plan("") };
        let script = render(&plan).unwrap();
        let armed = script.find("run bullpen-watchdog.timer").unwrap();
        for later in ["curl", "useradd", "mkdir", "bullpen-agent.service"] {
            assert!(armed < script.find(later).unwrap(), "{later}");
        }
    }
}
