//! The boot script: the user data of an instance, run once by cloud-init at its first boot.
//!
//! In order: the *watchdog*, a timer that powers the machine off, at this boot and every other; the
//! user that jobs run as; the agent, from the image or fetched; the *payload*, which the agent reads;
//! the agent's unit. If a step fails the machine says why on its console and powers itself off.
//!
//! Later boots of the same instance have the units alone: cloud-init does not run the script again.
//!
//! Not here: what is in the payload (`bullpen_agent::machine`), or what the agent does with it.

use std::time::Duration;

/// What the user data of an instance may have at most, before they are encoded; EC2's rule.
pub const USER_DATA_BYTES_MAX: usize = 16_384;

/// How long a download is tried. Long enough for a network and a role that come late; a machine
/// without its agent costs money and serves nobody.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The script, with its comments, and with marks where the plan comes in.
const TEMPLATE: &str = include_str!("boot/boot.sh");
const PLAN_MARK: &str = "@plan@";
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
    pub agent: Option<Fetch>,
    /// The user of the system that jobs run as. It is made if the image has no such user.
    pub user: Option<String>,
    /// Whether that user may become root.
    pub sudo: bool,
    /// What the agent is to read.
    pub payload: Payload,
}

/// Something to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// `https://…`, or `s3://bucket/key` in the instance's own region, fetched with its role.
    pub url: String,
    /// In hexadecimal digits.
    pub sha256: String,
}

/// The text that the agent finds in its machine's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Part of the user data, kept byte for byte. Like all JSON it has no NUL.
    Inline(String),
    /// Too large for that.
    Fetch(Fetch),
}

/// User data that EC2 would refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the user data have {bytes} bytes, {} more than EC2 takes ({USER_DATA_BYTES_MAX}); \
     make the scripts of the runner or image shorter, or let them fetch what they need",
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
/// If it is larger than EC2 takes. [`Payload::Fetch`] is never too large.
pub fn render(plan: &BootPlan) -> Result<String, TooLarge> {
    let mut script = String::new();
    for line in TEMPLATE.lines().filter(|line| !is_comment(line)) {
        match line {
            PLAN_MARK => script += &variables(plan),
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

/// Whether a line is for readers of the template only. An empty one is, too.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with("# ")
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
        format!("agent_url={}", quoted(agent.map(|agent| &agent.url))),
        format!("agent_sha256={}", quoted(agent.map(|agent| &agent.sha256))),
    ]
    .join("\n")
}

/// The lines that put the payload in its place.
fn payload(payload: &Payload) -> String {
    const PLACE: &str = "$machine/user-data";
    match payload {
        Payload::Fetch(Fetch { url, sha256 }) => {
            format!("bring {} {} {PLACE}", quoted(url), quoted(sha256))
        }
        Payload::Inline(text) => {
            let (end, bytes) = (delimiter(text), text.len());
            // A document ends with a line's end, which is not the payload's: hence the count.
            format!("head -c {bytes} >{PLACE} <<'{end}'\n{text}\n{end}")
        }
    }
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

    fn fetch(url: &str) -> Fetch {
        Fetch { url: url.to_owned(), sha256: "0".repeat(64) }
    }

    fn plan(payload: Payload) -> BootPlan {
        BootPlan {
            watchdog: Duration::from_secs(3_600),
            patience: PATIENCE,
            agent: None,
            user: None,
            sudo: false,
            payload,
        }
    }

    fn inline(text: &str) -> BootPlan {
        plan(Payload::Inline(text.to_owned()))
    }

    #[test]
    fn the_script_is_below_four_kibibytes_without_the_payload() {
        // A name has 32 characters in Linux; an address of ours has a stack, a version, a machine.
        let url = format!("s3://{}/{}", "b".repeat(63), "k".repeat(200));
        let longest = BootPlan {
            watchdog: Duration::from_secs(u64::from(u32::MAX)),
            agent: Some(fetch(&url)),
            user: Some("u".repeat(32)),
            sudo: true,
            ..plan(Payload::Fetch(fetch(&url)))
        };
        for plan in [longest.clone(), BootPlan { payload: inline("").payload, ..longest }] {
            let bytes = render(&plan).unwrap().len();
            assert!(bytes < 4_096, "{bytes}");
        }
    }

    #[test]
    fn what_ec2_would_refuse_is_an_error_that_says_by_how_much() {
        let bare = render(&inline("")).unwrap().len();
        let digits = "16384".len() - "0".len();
        let fits = USER_DATA_BYTES_MAX - bare - digits;
        assert_eq!(render(&inline(&"x".repeat(fits))).unwrap().len(), USER_DATA_BYTES_MAX);
        let error = render(&inline(&"x".repeat(fits + 7))).unwrap_err();
        assert_eq!(error, TooLarge { bytes: USER_DATA_BYTES_MAX + 7 });
        assert!(error.to_string().contains("16391 bytes, 7 more than EC2 takes"), "{error}");
    }

    #[test]
    fn only_the_first_line_begins_like_a_comment() {
        let script = render(&inline("{}")).unwrap();
        let (first, rest) = script.split_once('\n').unwrap();
        assert_eq!(first, "#!/bin/bash");
        assert!(!rest.contains("\n#"), "{rest}");
        assert!(!rest.contains(PLAN_MARK) && !rest.contains(PAYLOAD_MARK), "{rest}");
    }

    #[test]
    fn marks_and_comments_in_what_is_given_are_kept() {
        let text = "# not ours\n@plan@\n@payload@\n";
        let script = render(&inline(text)).unwrap();
        assert!(script.contains(&format!("<<'END'\n{text}\nEND\n")), "{script}");
    }

    #[test]
    fn a_word_is_one_word_whatever_is_in_it() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        let named = BootPlan { user: Some("'; reboot; '".to_owned()), ..inline("") };
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
        let plan = BootPlan { agent: Some(fetch("https://a/b")), ..inline("") };
        let script = render(&plan).unwrap();
        let armed = script.find("run bullpen-watchdog.timer").unwrap();
        for later in ["curl", "useradd", "mkdir", "bullpen-agent.service"] {
            assert!(armed < script.find(later).unwrap(), "{later}");
        }
    }
}
