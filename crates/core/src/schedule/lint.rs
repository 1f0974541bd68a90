//! Finds oddities in a schedule: entries that never apply, entries that share minutes, minutes
//! without an entry.
//!
//! A week has 10 080 minutes of wall clock. The lint computes the set of minutes that each entry
//! matches and compares these sets, so the findings are exact.
//!
//! Not here: unreadable days, times and zones (their own types refuse them).

use super::time_of_day::{TimeOfDay, Weekday};
use super::{Match, Schedule};
use crate::severity::Severity;

/// More entries than this are refused: the lint compares every pair, and people cannot follow more.
pub const ENTRIES_MAX: usize = 100;

/// One oddity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleFinding {
    /// The index of the entry; `None` if the finding is about the whole schedule.
    pub entry: Option<usize>,
    /// Its kind.
    pub kind: ScheduleFindingKind,
    /// How much it matters.
    pub severity: Severity,
    /// The text for people.
    pub message: String,
}

/// The kinds of oddity. Indexes count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleFindingKind {
    /// The schedule has no entry: the pool keeps nothing.
    Empty,
    /// The schedule has more than [`ENTRIES_MAX`] entries; the lint skipped the others.
    TooMany,
    /// Both entries match at some time; this entry is listed later and wins then.
    Overlap {
        /// The entry listed earlier.
        with: usize,
    },
    /// The entry never applies.
    Unreachable,
    /// An earlier entry has the same name: a preview cannot tell them apart.
    SameName {
        /// The entry listed earlier.
        with: usize,
    },
    /// At some time no entry matches, and there is no fallback: the pool keeps nothing then.
    NoFallback,
}

const MINUTES: usize = 7 * TimeOfDay::COUNT as usize;
const WORDS: usize = MINUTES.div_ceil(64);

/// A set of minutes of the week.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Minutes([u64; WORDS]);

impl Minutes {
    const NONE: Self = Self([0; WORDS]);

    fn of(when: &Match) -> Self {
        let mut set = Self::NONE;
        for (index, (day, time)) in week().enumerate() {
            set.0[index / 64] |= u64::from(when.covers(day, time)) << (index % 64);
        }
        set
    }

    fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).any(|(word, more)| word & more != 0)
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(other.0).all(|(word, more)| word & !more == 0)
    }
}

fn week() -> impl Iterator<Item = (Weekday, TimeOfDay)> {
    Weekday::ALL.into_iter().flat_map(|day| {
        (0..TimeOfDay::COUNT).filter_map(move |m| Some((day, TimeOfDay::from_minutes(m)?)))
    })
}

/// All findings about a schedule, in the order of its entries.
pub fn lint(schedule: &Schedule) -> Vec<ScheduleFinding> {
    if schedule.entries.is_empty() {
        let message = "the schedule has no entry: the pool keeps nothing";
        return vec![whole(ScheduleFindingKind::Empty, Severity::Warning, message.to_owned())];
    }
    let mut findings = Vec::new();
    let count = schedule.entries.len();
    if count > ENTRIES_MAX {
        let message =
            format!("the schedule has {count} entries; at most {ENTRIES_MAX} are allowed");
        findings.push(whole(ScheduleFindingKind::TooMany, Severity::Error, message));
    }
    let weeks: Vec<Option<Minutes>> = schedule
        .entries
        .iter()
        .take(ENTRIES_MAX)
        .map(|entry| entry.when.as_ref().map(Minutes::of))
        .collect();
    let unreachable = unreachable(&weeks);
    for index in 0..weeks.len() {
        findings.extend(same_name(schedule, index));
        match unreachable[index] {
            Some(why) => findings.push(never(schedule, index, why)),
            None => findings.extend(overlaps(schedule, &weeks, &unreachable, index)),
        }
    }
    findings.extend(no_fallback(&weeks));
    findings
}

fn whole(kind: ScheduleFindingKind, severity: Severity, message: String) -> ScheduleFinding {
    ScheduleFinding { entry: None, kind, severity, message }
}

/// Why an entry never applies.
#[derive(Clone, Copy)]
enum Never {
    MatchesNothing,
    AnotherFallback,
    NothingLeft,
    AlwaysOutdone,
}

impl Never {
    const fn why(self) -> &'static str {
        match self {
            Self::MatchesNothing => "it matches no day",
            Self::AnotherFallback => "a fallback listed later takes its place",
            Self::NothingLeft => "the other entries match at any time",
            Self::AlwaysOutdone => "whenever it matches, an entry listed later does too and wins",
        }
    }
}

fn unreachable(weeks: &[Option<Minutes>]) -> Vec<Option<Never>> {
    let mut later = Minutes::NONE;
    let mut later_fallback = false;
    let mut all = Minutes::NONE;
    weeks.iter().flatten().for_each(|week| all.join(week));
    let mut found: Vec<Option<Never>> = weeks
        .iter()
        .rev()
        .map(|week| match week {
            None => {
                let replaced = std::mem::replace(&mut later_fallback, true);
                let full = all.count() == MINUTES;
                replaced.then_some(Never::AnotherFallback).or(full.then_some(Never::NothingLeft))
            }
            Some(week) if week.is_empty() => Some(Never::MatchesNothing),
            Some(week) => {
                let outdone = week.is_within(&later);
                later.join(week);
                outdone.then_some(Never::AlwaysOutdone)
            }
        })
        .collect();
    found.reverse();
    found
}

fn never(schedule: &Schedule, index: usize, why: Never) -> ScheduleFinding {
    let name = &schedule.entries[index].name;
    ScheduleFinding {
        entry: Some(index),
        kind: ScheduleFindingKind::Unreachable,
        severity: Severity::Warning,
        message: format!("entry {name:?} never applies: {}", why.why()),
    }
}

fn overlaps(
    schedule: &Schedule,
    weeks: &[Option<Minutes>],
    unreachable: &[Option<Never>],
    index: usize,
) -> Vec<ScheduleFinding> {
    let Some(week) = &weeks[index] else { return Vec::new() };
    let name = &schedule.entries[index].name;
    let earlier = weeks[..index].iter().enumerate().filter_map(|(with, other)| {
        // Another finding already reports that the earlier entry never applies.
        let other = other.as_ref().filter(|_| unreachable[with].is_none())?;
        week.meets(other).then_some(with)
    });
    let note = |with: usize| ScheduleFinding {
        entry: Some(index),
        kind: ScheduleFindingKind::Overlap { with },
        severity: Severity::Note,
        message: format!(
            "entries {:?} and {name:?} overlap; {name:?} is listed later and wins there",
            schedule.entries[with].name,
        ),
    };
    earlier.map(note).collect()
}

fn same_name(schedule: &Schedule, index: usize) -> Option<ScheduleFinding> {
    let name = &schedule.entries[index].name;
    let with = schedule.entries[..index].iter().position(|entry| entry.name == *name)?;
    Some(ScheduleFinding {
        entry: Some(index),
        kind: ScheduleFindingKind::SameName { with },
        severity: Severity::Warning,
        message: format!("another entry is called {name:?} too; a preview cannot tell them apart"),
    })
}

fn no_fallback(weeks: &[Option<Minutes>]) -> Option<ScheduleFinding> {
    if weeks.iter().any(Option::is_none) {
        return None;
    }
    let mut all = Minutes::NONE;
    weeks.iter().flatten().for_each(|week| all.join(week));
    let bare = MINUTES - all.count();
    (bare > 0).then(|| {
        let span = format!("{} h {:02} min", bare / 60, bare % 60);
        let message = format!(
            "for {span} of every week no entry matches and the pool keeps nothing; \
             add an entry without `match`"
        );
        whole(ScheduleFindingKind::NoFallback, Severity::Warning, message)
    })
}
