//! The boot script: the user data of an instance, run once by cloud-init at its first boot.
//!
//! In order: the *watchdog*, a timer that powers the machine off, at this boot and every other; the
//! user that jobs run as; the agent, from the image or fetched; the *payload*, which the agent reads;
//! the agent's unit. If a step fails the machine says why on its console and powers itself off.
//!
//! Later boots of the same instance have the units alone: cloud-init does not run the script again.
//!
//! Not here: how a machine fetches, what is in the payload, or what the agent does with it (all
//! `bullpen_agent::machine`).

use std::time::Duration;

use bullpen_agent::machine::FETCH;
use bullpen_core::download::Download;

/// What the user data of an instance may have at most, before they are encoded; EC2's rule.
pub const USER_DATA_BYTES_MAX: usize = 16_384;

/// How long a download is tried. Long enough for a network and a role that come late; a machine
/// without its agent costs money and serves nobody.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The script, with its comments, and with marks where the plan comes in.
const TEMPLATE: &str = include_str!("boot/boot.sh");
const PLAN_MARK: &str = "@plan@";
const FETCH_MARK: &str = "@fetch@";
const PAYLOAD_MARK: &str = "@payload@";

/// What one kind of instance does at its first boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootPlan {
    /// When the machine is powered off at the latest, counted from each boot; in whole seconds.
    pub watchdog: Duration,
    /// How long each download is tried, usually [`PATIENCE`]; in whole seconds.
    pub patience: Duration,
    /// Where the agent comes from if the image has no agent or another one. Without it the image's
    /// agent is taken as it is.
    pub agent: Option<Download>,
    /// The user of the system that jobs run as. It is made if the image has no such user.
    pub user: Option<String>,
    /// Whether that user may become root.
    pub sudo: bool,
    /// Whether it may use the image's container engine, if there is one. Who may is as good as root.
    pub docker: bool,
    /// What the agent finds in its machine's directory, kept byte for byte. Like all JSON it has no NUL.
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
    /// How many bytes it would be.
    pub bytes: usize,
}

/// The script as text for EC2, not yet encoded.
///
/// # Errors
///
/// If it is larger than EC2 takes.
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

/// Without what is for readers of the template only: comments, empty lines, indentation.
fn without_comments(script: &str) -> impl Iterator<Item = &str> {
    let is_comment = |line: &&str| line.is_empty() || line.starts_with("# ");
    script.lines().map(str::trim_start).filter(move |line| !is_comment(line))
}

/// The plan as the script's variables.
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

/// The lines that put the payload in its place.
fn payload(text: &str) -> String {
    let (end, bytes) = (delimiter(text), text.len());
    // A document ends with a line's end, which is not the payload's: hence the count.
    format!("head -c {bytes} >$machine/user-data <<'{end}'\n{text}\n{end}")
}

/// A line that the text does not have.
fn delimiter(text: &str) -> String {
    let mut end = "END".to_owned();
    while text.split('\n').any(|line| line == end) {
        end.push('_');
    }
    end
}

/// One word of a shell, whatever is in it.
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
        // A name has 32 characters in Linux; an address of ours has a stack, a version, a machine.
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
    fn a_word_is_one_word_whatever_is_in_it() {
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
