//! Tests of schedules by example: the example of the warm pools, both nights on which clocks
//! change, and the lint's findings.
//!
//! Not here: random schedules (`properties`), or reading times, days and zone names (their own
//! modules).

use super::*;
use crate::severity::Severity;

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

pub(super) fn zone(name: &str) -> Zone {
    Zone::parse(name).unwrap()
}

fn daily(from: &str, to: &str) -> Match {
    let time = |text| TimeOfDay::parse(text).unwrap();
    Match { days: None, window: Some(Window { from: time(from), to: time(to) }) }
}

fn on(names: &[&str]) -> Match {
    let days = names.iter().map(|name| Weekday::parse(name).unwrap()).collect();
    Match { days: Some(days), window: None }
}

fn on_at(names: &[&str], from: &str, to: &str) -> Match {
    Match { window: daily(from, to).window, ..on(names) }
}

pub(super) fn entry(name: &str, hot: u32, stopped: u32, when: Option<Match>) -> ScheduleEntry {
    ScheduleEntry { name: name.to_owned(), hot, stopped, when }
}

pub(super) fn schedule(entries: Vec<ScheduleEntry>) -> Schedule {
    Schedule { zone: "Europe/Paris".to_owned(), entries }
}

/// The example schedule of the warm pools.
pub(super) fn seeds() -> Schedule {
    let every = Weekday::ALL.map(Weekday::as_str);
    schedule(vec![
        entry("default", 1, 2, None),
        entry("nights", 0, 2, Some(on_at(&every, "22:00", "06:00"))),
        entry("weekends", 0, 1, Some(on(&["saturday", "sunday"]))),
    ])
}

fn target_text(schedule: &Schedule, instant: &str) -> String {
    let zone = zone(&schedule.zone);
    let target = target_at(schedule, &zone, at(instant));
    format!("{} {}/{}", target.entry.as_deref().unwrap_or("-"), target.hot, target.stopped)
}

fn listed(schedule: &Schedule, from: &str, until: &str) -> Vec<String> {
    let zone = zone(&schedule.zone);
    let line = |change: ChangePoint| {
        format!("{} {}", zone.written(change.at), change.target.entry.as_deref().unwrap_or("-"))
    };
    changes(schedule, &zone, at(from), at(until)).into_iter().map(line).collect()
}

#[test]
fn the_seeds_example_has_the_targets_it_should() {
    for (instant, expected) in [
        ("2026-05-30T23:30:00+02:00", "weekends 0/1"), // a Saturday: the later entry wins
        ("2026-05-29T23:30:00+02:00", "nights 0/2"),
        ("2026-05-30T00:00:00+02:00", "weekends 0/1"),
        ("2026-06-01T00:00:00+02:00", "nights 0/2"), // Sunday's window continues into Monday
        ("2026-05-26T05:59:00+02:00", "nights 0/2"), // a Tuesday
        ("2026-05-26T05:59:59.999+02:00", "nights 0/2"),
        ("2026-05-26T06:00:00+02:00", "default 1/2"),
        ("2026-05-26T21:59:59.999+02:00", "default 1/2"),
        ("2026-05-26T22:00:00+02:00", "nights 0/2"),
    ] {
        assert_eq!(target_text(&seeds(), instant), expected, "{instant}");
    }
}

#[test]
fn the_seeds_example_has_one_note() {
    let findings = lint(&seeds());
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!(finding.entry, Some(2));
    assert_eq!(finding.kind, ScheduleFindingKind::Overlap { with: 1 });
    assert_eq!(finding.severity, Severity::Note);
    let expected =
        "entries \"nights\" and \"weekends\" overlap; \"weekends\" is listed later and wins there";
    assert_eq!(finding.message, expected);
}

#[test]
fn the_seeds_example_changes_through_the_spring_night() {
    let expected = [
        "2026-03-27 22:00:00 +01:00 nights",
        "2026-03-28 00:00:00 +01:00 weekends",
        "2026-03-30 00:00:00 +02:00 nights",
        "2026-03-30 06:00:00 +02:00 default",
    ];
    let seeds = seeds();
    assert_eq!(listed(&seeds, "2026-03-27T21:00:00Z", "2026-03-30T20:00:00Z"), expected);
    assert_eq!(listed(&seeds, "2026-03-30T20:00:00Z", "2026-03-30T20:00:00Z"), [""; 0]);
}

/// 02:00 to 03:00 does not happen: 01:59:59 is followed by 03:00:00.
#[test]
fn the_skipped_hour_in_paris_has_one_target_at_every_instant() {
    let inside = schedule(vec![
        entry("default", 1, 2, None),
        entry("inside", 2, 0, Some(daily("02:15", "02:45"))),
        entry("around", 3, 0, Some(daily("01:30", "02:30"))),
    ]);
    assert_eq!(
        listed(&inside, "2026-03-27T23:00:00Z", "2026-03-29T10:00:00Z"),
        [
            "2026-03-28 01:30:00 +01:00 around",
            "2026-03-28 02:30:00 +01:00 inside",
            "2026-03-28 02:45:00 +01:00 default",
            "2026-03-29 01:30:00 +01:00 around",
            "2026-03-29 03:00:00 +02:00 default", // half an hour after 01:30
        ]
    );
    assert_eq!(target_text(&inside, "2026-03-29T00:59:59.999Z"), "around 3/0");
    assert_eq!(target_text(&inside, "2026-03-29T01:00:00Z"), "default 1/2");
}

/// 02:00 to 03:00 happens twice.
#[test]
fn the_repeated_hour_in_paris_has_one_target_at_every_instant() {
    let inside = schedule(vec![
        entry("default", 1, 2, None),
        entry("inside", 2, 0, Some(daily("02:15", "02:45"))),
        entry("nights", 0, 2, Some(daily("22:00", "02:30"))),
    ]);
    assert_eq!(
        listed(&inside, "2026-10-24T20:00:00Z", "2026-10-25T20:00:00Z"),
        [
            "2026-10-24 22:00:00 +02:00 nights",
            "2026-10-25 02:30:00 +02:00 inside",
            "2026-10-25 02:45:00 +02:00 default",
            "2026-10-25 02:00:00 +01:00 nights",
            "2026-10-25 02:30:00 +01:00 inside",
            "2026-10-25 02:45:00 +01:00 default",
        ]
    );
    assert_eq!(target_text(&seeds(), "2026-10-25T00:30:00Z"), "weekends 0/1");
    assert_eq!(target_text(&seeds(), "2026-10-25T01:30:00Z"), "weekends 0/1");
    assert_eq!(
        listed(&seeds(), "2026-10-25T00:00:00Z", "2026-10-26T12:00:00Z"),
        ["2026-10-26 00:00:00 +01:00 nights", "2026-10-26 06:00:00 +01:00 default"]
    );
}

#[test]
fn a_day_that_was_never_there_is_skipped() {
    // Samoa went from Thursday the 29th of December 2011 to Saturday the 31st.
    let apia = Schedule {
        zone: "Pacific/Apia".to_owned(),
        entries: vec![
            entry("fridays", 1, 0, Some(on(&["friday"]))),
            entry("late", 2, 0, Some(on_at(&["friday"], "23:00", "01:00"))),
        ],
    };
    assert_eq!(
        listed(&apia, "2011-12-29T00:00:00Z", "2012-01-01T00:00:00Z"),
        // By the calendar, Saturday's first hour still belongs to Friday's window.
        ["2011-12-31 00:00:00 +14:00 late", "2011-12-31 01:00:00 +14:00 -"]
    );
}

#[test]
fn windows_are_what_their_ends_say() {
    let covers = |m: &Match, day: &str, time: &str| {
        m.covers(Weekday::parse(day).unwrap(), TimeOfDay::parse(time).unwrap())
    };
    let night = on_at(&["friday"], "22:00", "06:00");
    for (day, time, expected) in [
        ("friday", "05:59", false),
        ("friday", "21:59", false),
        ("friday", "22:00", true),
        ("saturday", "05:59", true),
        ("saturday", "06:00", false),
        ("saturday", "22:00", false),
    ] {
        assert_eq!(covers(&night, day, time), expected, "{day} {time}");
    }
    let whole = on_at(&["friday"], "22:00", "22:00");
    let to_midnight = on_at(&["friday"], "22:00", "00:00");
    assert!(covers(&whole, "friday", "00:00") && covers(&whole, "friday", "23:59"));
    assert!(!covers(&whole, "saturday", "00:00") && !covers(&whole, "thursday", "23:59"));
    assert!(covers(&to_midnight, "friday", "23:59") && !covers(&to_midnight, "saturday", "00:00"));
    let sunday = on_at(&["sunday"], "23:00", "01:00");
    assert!(covers(&sunday, "monday", "00:59"));
}

#[test]
fn nothing_applies_says_so() {
    let office = daily("09:00", "17:00");
    let only = schedule(vec![entry("office", 1, 0, Some(office))]);
    assert_eq!(target_text(&only, "2026-05-26T08:00:00+02:00"), "- 0/0");
    assert_eq!(target_text(&schedule(Vec::new()), "2026-05-26T08:00:00+02:00"), "- 0/0");
    let two = schedule(vec![entry("a", 1, 0, None), entry("b", 2, 0, None)]);
    assert_eq!(target_text(&two, "2026-05-26T08:00:00+02:00"), "b 2/0");
}

/// The findings of a schedule, one line each.
fn lint_lines(entries: Vec<ScheduleEntry>) -> Vec<String> {
    let line =
        |finding: ScheduleFinding| format!("{}: {}", finding.severity.as_str(), finding.message);
    lint(&schedule(entries)).into_iter().map(line).collect()
}

#[test]
fn oddities_are_found_and_named() {
    let timed = |from, to| Some(daily(from, to));
    let on = |names: &[&str]| Some(on(names));
    let every = || on(&Weekday::ALL.map(Weekday::as_str));
    for (entries, expected) in [
        (vec![], vec!["warning: the schedule has no entry: the pool keeps nothing"]),
        (vec![entry("a", 1, 0, None)], vec![]),
        (
            vec![entry("a", 1, 0, None), entry("b", 1, 0, None)],
            vec!["warning: entry \"a\" never applies: a fallback listed later takes its place"],
        ),
        (
            vec![entry("a", 1, 0, timed("09:00", "17:00"))],
            vec![
                "warning: for 112 h 00 min of every week no entry matches and the pool keeps \
                 nothing; add an entry without `match`",
            ],
        ),
        (
            vec![entry("a", 1, 0, None), entry("b", 1, 0, every())],
            vec!["warning: entry \"a\" never applies: the other entries match at any time"],
        ),
        (
            vec![
                entry("a", 1, 0, None),
                entry("b", 1, 0, timed("09:00", "17:00")),
                entry("c", 1, 0, timed("08:00", "18:00")),
            ],
            vec![
                "warning: entry \"b\" never applies: whenever it matches, an entry listed later \
                 does too and wins",
            ],
        ),
        (
            vec![entry("a", 1, 0, None), entry("b", 1, 0, on(&[]))],
            vec!["warning: entry \"b\" never applies: it matches no day"],
        ),
        (
            vec![entry("a", 1, 0, None), entry("a", 1, 0, on(&["monday"]))],
            vec!["warning: another entry is called \"a\" too; a preview cannot tell them apart"],
        ),
        (
            // Sunday's window continues into Monday by one minute.
            vec![
                entry("a", 1, 0, None),
                entry("b", 1, 0, Some(on_at(&["sunday"], "23:00", "00:01"))),
                entry("c", 1, 0, on(&["monday"])),
            ],
            vec!["note: entries \"b\" and \"c\" overlap; \"c\" is listed later and wins there"],
        ),
    ] {
        assert_eq!(lint_lines(entries), expected);
    }
}

#[test]
fn too_many_entries_are_refused_and_the_rest_is_still_looked_at() {
    let many = (0..=ENTRIES_MAX).map(|n| entry(&n.to_string(), 0, 0, None)).collect();
    let lines = lint_lines(many);
    assert_eq!(lines[0], "error: the schedule has 101 entries; at most 100 are allowed");
    assert_eq!(lines.len(), ENTRIES_MAX);
}
