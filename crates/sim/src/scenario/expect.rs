//! The expectations of a scenario: counts, states, and how a process ended.
//!
//! Not here: where the counts come from (`looks`, `processes`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bullpen_core::ids::{PoolName, RequestId};
use bullpen_core::spelling::{hint, nearest};

use super::pools;
use super::processes::{Finished, HOW_ENDED};
use super::serving::{self, Expected};
use super::words::{Misspelt, Span, Word, Words};

/// Counts by name.
pub(super) type StateCounts = BTreeMap<&'static str, u64>;

/// The subjects of counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Records,
    Machines,
    Runners,
    Jobs,
    Calls,
    Ended,
    Queues,
}

const SUBJECTS: [(&str, Subject); 7] = [
    ("records", Subject::Records),
    ("machines", Subject::Machines),
    ("runners", Subject::Runners),
    ("jobs", Subject::Jobs),
    ("calls", Subject::Calls),
    ("ended", Subject::Ended),
    ("queues", Subject::Queues),
];

/// The counts of a subject.
fn keys(subject: Subject) -> &'static [&'static str] {
    match subject {
        Subject::Records => &[
            "created",
            "idle",
            "claimed",
            "running",
            "releasing",
            "stopping",
            "terminating",
            "terminated",
            "live",
            "reserved",
        ],
        Subject::Machines => &["pending", "running", "stopped", "gone", "alive"],
        Subject::Runners => &["online"],
        Subject::Jobs => &["done", "waiting"],
        Subject::Calls => &["ledger", "queues", "mailbox", "fleet", "forge", "refused", "lost"],
        Subject::Ended => &END_REASONS,
        Subject::Queues => &["made"],
    }
}

/// As the ledger writes them.
const END_REASONS: [&str; 12] = [
    "deadline-passed",
    "failed-checks",
    "failed-warm-up",
    "request-failed",
    "dumped",
    "not-acknowledged",
    "worn-out",
    "outdated",
    "untrusted",
    "surplus",
    "machine-gone",
    "operator",
];

const PROCESS_KEYS: [&str; 7] =
    ["runners", "reused", "started", "created", "returned", "ended", "waiting"];
const MACHINE_KEYS: [&str; 3] = ["uses", "generation", "vcpu"];
const MACHINE_STATES: [(&str, &str); 10] = [
    ("created", "created"),
    ("idle", "idle"),
    ("claimed", "claimed"),
    ("running", "running"),
    ("releasing", "releasing"),
    ("stopping", "stopping"),
    ("terminating", "terminating"),
    ("terminated", "terminated"),
    ("unrecorded", "unrecorded"),
    ("gone", "gone"),
];

type Wanted = Vec<(&'static str, Span)>;

/// The expectation of one line.
#[derive(Clone, Debug)]
pub(super) enum Expectation {
    Process {
        of: Option<RequestId>,
        ended: Option<&'static str>,
        because: Option<String>,
        within: Option<Duration>,
        counts: Wanted,
    },
    Counts {
        subject: Subject,
        of: Option<RequestId>,
        counts: Wanted,
    },
    Jobs(Expected),
    Pool {
        name: PoolName,
        counts: Wanted,
    },
    Machine {
        name: String,
        state: Option<&'static str>,
        counts: Wanted,
    },
}

impl Expectation {
    pub(super) fn parse(words: &mut Words) -> Result<Self, Misspelt> {
        let Some(first) = words.more() else { return process(words, None, None) };
        if first.text.contains('.') {
            let ended = words.more();
            return process(words, Some(RequestId::new(&first.text)), ended);
        }
        if first.text == "job" {
            return serving::expected(words).map(Self::Jobs);
        }
        if first.text == "pool" {
            let name = PoolName::new(&words.plain("a pool's name")?.text);
            return Ok(Self::Pool { name, counts: wanted(words, &pools::KEYS)? });
        }
        if super::names::is_name(&first.text) {
            let state = words.more();
            let state = state.map(|word| word.one_of("state of a machine", &MACHINE_STATES));
            let counts = wanted(words, &MACHINE_KEYS)?;
            return Ok(Self::Machine { name: first.text, state: state.transpose()?, counts });
        }
        if HOW_ENDED.iter().any(|(name, _)| *name == first.text) {
            return process(words, None, Some(first));
        }
        let subject = first.one_of("expectation", &all_first_words())?.ok_or_else(|| {
            first.wrong("name a machine by its number, and a request by its whole id")
        })?;
        let of = words.option("of").map(|word| RequestId::new(&word.text));
        let counts = wanted(words, keys(subject))?;
        if counts.is_empty() {
            let all = keys(subject).join(", ");
            return Err(words.after().wrong(format!("a count is missing (one of: {all})")));
        }
        Ok(Self::Counts { subject, of, counts })
    }
}

/// The subjects, and the ends of a process, which need no subject.
fn all_first_words() -> Vec<(&'static str, Option<Subject>)> {
    let subjects = SUBJECTS.iter().map(|(name, subject)| (*name, Some(*subject)));
    subjects.chain(HOW_ENDED.iter().map(|(name, _)| (*name, None))).collect()
}

fn process(
    words: &mut Words,
    of: Option<RequestId>,
    ended: Option<Word>,
) -> Result<Expectation, Misspelt> {
    let ended = ended.map(|word| word.one_of("way to end", &HOW_ENDED)).transpose()?;
    let because = words.option("because").map(|word| word.text);
    let within = words.option("within").map(|word| word.time()).transpose()?;
    let counts = wanted(words, &PROCESS_KEYS)?;
    let nothing = ended.is_none() && because.is_none() && within.is_none() && counts.is_empty();
    if nothing {
        return Err(words.after().wrong("an expectation is missing, such as fulfilled reused=4"));
    }
    Ok(Expectation::Process { of, ended, because, within, counts })
}

fn wanted(words: &mut Words, known: &[&'static str]) -> Result<Wanted, Misspelt> {
    let mut counts = Vec::new();
    for (key, value) in words.options() {
        let Some(name) = known.iter().find(|name| **name == key.text) else {
            let near = hint(&nearest(&key.text, known.iter().copied()));
            let all = known.join(", ");
            let what = format!("{:?} is not counted here{near} (one of: {all})", key.text);
            return Err(key.wrong(what));
        };
        counts.push((*name, value.span()?));
    }
    Ok(counts)
}

/// An expectation that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unmet(pub(super) String);

impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares expected counts with the found ones.
pub(super) fn compare(wanted: &Wanted, found: &StateCounts) -> Result<(), Unmet> {
    for (key, span) in wanted {
        let there = found.get(key).copied().unwrap_or(0);
        if !span.holds(there) {
            return Err(Unmet(format!("expected {key}={span}, found {key}={there}")));
        }
    }
    Ok(())
}

/// Compares a state with the expected state, if there is one.
pub(super) fn compare_state(name: &str, wanted: Option<&str>, found: &[&str]) -> Result<(), Unmet> {
    match wanted {
        Some(state) if !found.contains(&state) => {
            let found = found.join(" and ");
            Err(Unmet(format!("expected {name} to be {state}, and it is {found}")))
        }
        _ => Ok(()),
    }
}

/// Compares the end of a process with the expected end.
pub(super) fn compare_process(
    expected: (Option<&str>, Option<&str>, Option<Duration>),
    counts: &Wanted,
    finished: &Finished,
) -> Result<(), Unmet> {
    let (ended, because, within) = expected;
    compare_state("it", ended, &[finished.how()])?;
    if let Some(because) = because
        && !finished.report().contains(because)
    {
        let report = finished.report();
        return Err(Unmet(format!("expected a reason that says {because:?}, found {report:?}")));
    }
    if let Some(within) = within
        && finished.took > within
    {
        let took = finished.took;
        return Err(Unmet(format!("expected it to take {within:?} at most; it took {took:?}")));
    }
    compare(counts, &finished.counts())
}
