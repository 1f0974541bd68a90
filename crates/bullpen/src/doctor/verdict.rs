//! Judges what the doctor found; pure.
//!
//! Not here: finding it.

use std::time::Duration;

use bullpen_core::clock_witness::ClockWitness;
use bullpen_core::ids::JobId;
use bullpen_core::instance::State;
use bullpen_core::job::aside::SetAside;
use bullpen_core::ports::{ItemKind, Unreadable};
use bullpen_core::time::Timestamp;
use bullpen_github::AppStanding;

use crate::exit::Exit;

/// A clock that is further off makes leases and signatures fail.
const CLOCK_OFF_MAX: Duration = Duration::from_secs(5);
/// After this long a machine that was to end is named: the cloud confirms an end within a minute or two.
const ENDS_WITHIN: Duration = Duration::from_secs(10 * 60);
/// The precision of AWS's `Date` header: whole seconds.
#[cfg(feature = "aws")]
const CLOCK_STEP: Duration = Duration::from_secs(1);

/// One check: its name and its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: String,
    pub(super) verdict: Verdict,
}

/// A check's result in words, with advice where it is bad.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Good.
    Fine(String),
    /// The doctor cannot find out.
    Unknown(String),
    /// The stack works, with a problem.
    Warning(String, String),
    /// The stack does not work.
    Failed(String, String),
}

impl Verdict {
    /// The verdict's word, the finding, and the advice.
    pub(super) fn parts(&self) -> (&'static str, &str, Option<&str>) {
        match self {
            Self::Fine(what) => ("ok", what, None),
            Self::Unknown(what) => ("unknown", what, None),
            Self::Warning(what, then) => ("warning", what, Some(then)),
            Self::Failed(what, then) => ("FAILED", what, Some(then)),
        }
    }
}

impl Check {
    pub(super) fn fine(name: impl Into<String>, what: impl Into<String>) -> Self {
        Self { name: name.into(), verdict: Verdict::Fine(what.into()) }
    }

    pub(super) fn warning(
        name: impl Into<String>,
        what: impl Into<String>,
        then: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::Warning(what.into(), then.into()) }
    }

    pub(super) fn failed(
        name: impl Into<String>,
        what: impl Into<String>,
        then: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), verdict: Verdict::Failed(what.into(), then.into()) }
    }
}

/// The command's exit code.
pub(super) fn worst(checks: &[Check]) -> Exit {
    let failed = checks.iter().any(|check| matches!(check.verdict, Verdict::Failed(..)));
    if failed { Exit::Failed } else { Exit::Done }
}

/// The name of the check of stored items.
pub(super) const STORED: &str = "stored items";
/// How many unreadable items the doctor names one by one.
const NAMED_MAX: usize = 20;

/// Names the stored items that this version cannot read, and what to do about each.
pub(super) fn stored(items: &[Unreadable]) -> Vec<Check> {
    if items.is_empty() {
        return vec![Check::fine(STORED, "this version can read all that it looks at")];
    }
    let named = items.iter().take(NAMED_MAX).map(|item| {
        let Unreadable { kind, key, version, why } = item;
        let version = version.as_deref().unwrap_or("unknown");
        let then = match kind {
            ItemKind::Report => {
                "a newer agent or a job with root wrote it: its machine counts as silent, and ends with its owner"
            }
            _ if item.is_newer() => {
                "a newer version wrote it: upgrade this replica, or wait until a newer one deals with it; it stays as it is"
            }
            _ => "it stays as it is, and everything else goes on: repair it in the store, or remove it there once nothing needs it",
        };
        Check::warning(format!("{kind} {key}"), format!("version {version}, unreadable: {why}"), then)
    });
    let more = items.len().saturating_sub(NAMED_MAX);
    let rest = (more > 0).then(|| {
        Check::warning(
            STORED,
            format!("{more} more are unreadable"),
            "see the advice for the others",
        )
    });
    named.chain(rest).collect()
}

/// Whether this machine's clock is right, by the dates of GitHub's answers.
pub(super) fn clock_by_github(witness: &ClockWitness) -> Check {
    match witness.more_than(CLOCK_OFF_MAX) {
        None => Check::fine("clock by GitHub", "no difference is seen"),
        Some(error) => Check::failed(
            "clock by GitHub",
            error.to_string(),
            "synchronise it by NTP: a service whose clock is wrong judges no ages, and then takes on no jobs",
        ),
    }
}

/// A job whose row a process has set aside.
pub(super) fn set_aside(job: &JobId, note: &SetAside) -> Check {
    let SetAside { what, times, .. } = note;
    Check::warning(
        format!("job {job}"),
        format!("set aside after {times} failures of the service: {what}"),
        "the service tries it again every quarter of an hour (`set-aside-for`), and gives it up at its \
         deadline; please report the message",
    )
}

/// A machine that the service has asked the cloud to end for so long that the cloud must deny it.
pub(super) fn still_there((id, state): (&str, &State), now: Timestamp) -> Option<Check> {
    let State::Terminating { since, .. } = state else { return None };
    let minutes = now.since(*since).as_secs() / 60;
    (now.since(*since) >= ENDS_WITHIN).then(|| {
        Check::warning(
            format!("machine {id}"),
            format!("it should have ended {minutes} minutes ago, and its end is not confirmed"),
            "lift its termination protection, or allow ec2:TerminateInstances; the service's log says \
             what the cloud answers, and the service asks again every ten minutes",
        )
    })
}

/// Whether each App is installed only on the owner's account. An enterprise's account has no name.
pub(super) fn installed(owner: &str, apps: &[AppStanding]) -> Verdict {
    let is_other = |name: &&String| !name.eq_ignore_ascii_case(owner);
    let others: Vec<&str> = apps
        .iter()
        .flat_map(|app| app.accounts.iter().filter(is_other))
        .map(|name| if name.is_empty() { "an enterprise" } else { name })
        .collect();
    if !others.is_empty() {
        return Verdict::Failed(
            format!("the App is public: it is also installed on {}", others.join(", ")),
            "make it private in its settings at GitHub, and remove these installations: their \
             webhooks are signed with your secret"
                .to_owned(),
        );
    }
    let named = |is_public: Option<bool>| {
        let those = apps.iter().filter(|app| app.is_public == is_public);
        those.map(|app| app.slug.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (public, unknown) = (named(Some(true)), named(None));
    if !public.is_empty() {
        return Verdict::Failed(
            format!("public, so any account can install it: {public}"),
            "make it private in its settings at GitHub: webhooks of every installation are signed \
             with your secret"
                .to_owned(),
        );
    }
    if !unknown.is_empty() {
        let what =
            format!("on {owner} alone; GitHub does not report whether it is public: {unknown}");
        return Verdict::Unknown(what);
    }
    Verdict::Fine(format!("on {owner} alone, and private"))
}

/// Compares the runner program's version with GitHub's newest.
pub(super) fn runner_age(ours: Option<&str>, offered: Option<&str>) -> Verdict {
    let offers = offered.map_or_else(String::new, |offered| format!("; GitHub offers {offered}"));
    match (ours, offered) {
        (Some(ours), Some(offered)) if numbers(ours) >= numbers(offered) => {
            Verdict::Fine(format!("{ours}, and GitHub offers nothing newer"))
        }
        (Some(ours), Some(_)) => Verdict::Warning(
            format!("{ours}{offers}"),
            "update it: GitHub gives no jobs to runners that are 30 days behind a release"
                .to_owned(),
        ),
        (Some(ours), None) => {
            Verdict::Unknown(format!("{ours}; GitHub's offered version is unknown"))
        }
        (None, _) => Verdict::Unknown(format!(
            "the image or the runner directory decides the version{offers}; GitHub gives no jobs to \
             runners that are 30 days behind a release"
        )),
    }
}

fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or_default()).collect()
}

/// Judges how far this machine's clock is from AWS's.
#[cfg(feature = "aws")]
pub(super) fn clock(off: Option<Duration>) -> Verdict {
    match off {
        None => Verdict::Unknown("AWS sent no time".to_owned()),
        Some(off) if off <= CLOCK_OFF_MAX + CLOCK_STEP => {
            Verdict::Fine(format!("within {} s of AWS's", off.as_secs().max(1)))
        }
        Some(off) => Verdict::Failed(
            format!("{} s off AWS's", off.as_secs()),
            "synchronise this machine's clock by NTP: leases and signatures depend on it"
                .to_owned(),
        ),
    }
}

/// Judges a simulated permission.
#[cfg(feature = "aws")]
pub(super) fn permission(action: &str, answer: bullpen_aws::doctor::Answer) -> Verdict {
    use bullpen_aws::doctor::Answer;
    match answer {
        Answer::Allowed => Verdict::Fine("allowed".to_owned()),
        Answer::Unknown(why) => Verdict::Unknown(why),
        Answer::Denied => Verdict::Failed(
            "denied".to_owned(),
            format!("allow {action}: `bullpen policies control-plane` prints the whole policy"),
        ),
    }
}

/// Compares the vCPU quota with the needs of the largest class.
#[cfg(feature = "aws")]
pub(super) fn quota(vcpus: f64, largest: u32) -> Verdict {
    let ask = "request an increase under Service Quotas, Amazon EC2".to_owned();
    if vcpus < 1.0 {
        return Verdict::Failed("0 vCPUs: nothing can be launched".to_owned(), ask);
    }
    if vcpus < f64::from(largest) {
        let what = format!("{vcpus} vCPUs, and the largest class needs {largest}");
        return Verdict::Warning(what, ask);
    }
    Verdict::Fine(format!("{vcpus} vCPUs"))
}

#[cfg(test)]
mod tests {
    use bullpen_core::instance::EndReason;

    use super::*;

    #[test]
    fn only_what_does_not_work_fails_the_command() {
        let warned = [Check::fine("a", "b"), Check::warning("a", "b", "c")];
        assert_eq!(worst(&warned), Exit::Done);
        assert_eq!(worst(&[Check::failed("a", "b", "c")]), Exit::Failed);
    }

    #[test]
    fn each_unreadable_item_is_named_with_its_version_and_advice() {
        let item = |key: usize, version: Option<&str>| Unreadable {
            kind: ItemKind::Row,
            key: key.to_string(),
            version: version.map(str::to_owned),
            why: "no such shape".to_owned(),
        };
        assert!(matches!(&stored(&[])[..], [Check { verdict: Verdict::Fine(_), .. }]));
        let checks = stored(&[item(71, Some("9")), item(72, None)]);
        let (word, what, then) = checks[0].verdict.parts();
        assert_eq!((checks[0].name.as_str(), word), ("row 71", "warning"));
        assert_eq!(what, "version 9, unreadable: no such shape");
        assert!(then.is_some_and(|then| then.contains("upgrade this replica")), "{then:?}");
        let (_, what, then) = checks[1].verdict.parts();
        assert_eq!(what, "version unknown, unreadable: no such shape");
        assert!(then.is_some_and(|then| then.contains("repair it")), "{then:?}");
        let many: Vec<Unreadable> = (0..NAMED_MAX + 3).map(|key| item(key, None)).collect();
        let checks = stored(&many);
        assert_eq!(checks.len(), NAMED_MAX + 1);
        assert_eq!(checks[NAMED_MAX].verdict.parts().1, "3 more are unreadable");
    }

    #[test]
    fn a_runner_that_is_behind_gets_a_warning() {
        let age = |ours| runner_age(Some(ours), Some("2.325.0"));
        assert!(matches!(age("2.325.0"), Verdict::Fine(_)));
        assert!(matches!(age("2.1000.0"), Verdict::Fine(_)), "numbers, not letters");
        assert!(matches!(age("2.99.9"), Verdict::Warning(what, then)
            if what.contains("2.325.0") && then.contains("30 days")));
        assert!(matches!(runner_age(None, Some("2.325.0")), Verdict::Unknown(what)
            if what.contains("2.325.0")));
        assert!(matches!(runner_age(Some("2.325.0"), None), Verdict::Unknown(_)));
    }

    #[test]
    fn an_app_that_strangers_have_installed_is_refused() {
        let app = |slug: &str, is_public, accounts: &[&str]| AppStanding {
            slug: slug.to_owned(),
            is_public,
            accounts: accounts.iter().map(|&name| name.to_owned()).collect(),
        };
        let own = || app("own", Some(false), &["Acme"]);
        let on =
            |accounts: &[&str]| installed("acme", &[own(), app("more", Some(false), accounts)]);
        assert!(matches!(on(&["Acme"]), Verdict::Fine(_)));
        let and = |is_public| installed("acme", &[own(), app("more", is_public, &["acme"])]);
        assert!(matches!(and(Some(true)), Verdict::Failed(what, _) if what.ends_with(": more")));
        assert!(matches!(and(None), Verdict::Unknown(what) if what.ends_with(": more")));
        assert!(matches!(on(&["acme", "evil", ""]), Verdict::Failed(what, then)
            if what.contains("evil, an enterprise") && then.contains("private")));
    }

    #[test]
    fn a_machine_that_does_not_end_is_named_after_a_while() {
        let since = Timestamp::from_millis(0);
        let why = EndReason::DeadlinePassed;
        let check =
            |waited| still_there(("i-1", &State::Terminating { why, since }), since.after(waited));
        assert_eq!(check(ENDS_WITHIN / 2), None);
        let late = check(ENDS_WITHIN * 2).expect("it is named");
        assert!(late.name.contains("i-1"));
        assert!(matches!(&late.verdict, Verdict::Warning(what, _) if what.contains("20 minutes")));
    }

    #[cfg(feature = "aws")]
    #[test]
    fn a_clock_may_be_a_little_off() {
        let off = |seconds| clock(Some(Duration::from_secs(seconds)));
        assert!(matches!(off(0), Verdict::Fine(_)) && matches!(off(5), Verdict::Fine(_)));
        assert!(matches!(off(7), Verdict::Failed(..)));
        assert!(matches!(clock(None), Verdict::Unknown(_)));
    }

    #[cfg(feature = "aws")]
    #[test]
    fn a_quota_of_zero_fails_and_a_small_one_warns() {
        assert!(matches!(quota(0.0, 2), Verdict::Failed(..)));
        assert!(matches!(quota(16.0, 64), Verdict::Warning(..)));
        assert_eq!(quota(64.0, 64), Verdict::Fine("64 vCPUs".to_owned()));
    }

    #[cfg(feature = "aws")]
    #[test]
    fn what_is_denied_is_named_with_the_policy() {
        use bullpen_aws::doctor::Answer;
        let Verdict::Failed(_, then) = permission("ec2:StopInstances", Answer::Denied) else {
            panic!("the answer is Denied")
        };
        assert!(then.contains("ec2:StopInstances") && then.contains("bullpen policies"), "{then}");
    }
}
