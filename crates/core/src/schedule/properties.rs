//! Property tests with random schedules: compares change points with a scan of every minute and
//! with the targets on both sides, and covers every zone.
//!
//! Not here: examples with their dates (`tests`).

use std::time::Duration;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::tests::{at, entry, schedule, seeds, zone};
use super::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
const INSTANT: Duration = Duration::from_millis(1);

/// Zones with all kinds of clock changes: whole and half hours, around Ramadan, none at all.
const ZONES: [&str; 5] = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Africa/Casablanca",
    "Asia/Kolkata",
];

fn time_of_day() -> impl Strategy<Value = TimeOfDay> {
    // Half hours, so that windows touch each other and clock changes, and any other minute.
    prop_oneof![(0..48_u16).prop_map(|half| half * 30), 0..TimeOfDay::COUNT]
        .prop_map(|minutes| TimeOfDay::from_minutes(minutes).unwrap())
}

fn any_match() -> impl Strategy<Value = Match> {
    let days = option::of(btree_set(select(Weekday::ALL.to_vec()), 0..=7));
    let window = (time_of_day(), time_of_day()).prop_map(|(from, to)| Window { from, to });
    (days, option::weighted(0.8, window)).prop_map(|(days, window)| Match { days, window })
}

fn any_schedule() -> impl Strategy<Value = Schedule> {
    let entry = (0..3_u32, 0..3_u32, option::weighted(0.8, any_match()));
    vec(entry, 0..6).prop_map(|entries| {
        let named = entries.into_iter().enumerate();
        schedule(named.map(|(n, (hot, stopped, m))| entry_of(n, hot, stopped, m)).collect())
    })
}

fn entry_of(n: usize, hot: u32, stopped: u32, when: Option<Match>) -> ScheduleEntry {
    entry(&format!("e{n}"), hot, stopped, when)
}

/// Two years, in which some schedules have hundreds of changes.
const YEARS: (&str, &str) = ("2026-01-01T00:00:00Z", "2028-01-01T00:00:00Z");

/// The changes that a scan of every minute finds.
fn scanned(
    schedule: &Schedule,
    zone: &Zone,
    from: Timestamp,
    until: Timestamp,
) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    let mut last = target_at(schedule, zone, from.before(INSTANT));
    let mut now = from;
    while now < until {
        let target = target_at(schedule, zone, now);
        if target != last {
            found.push(ChangePoint { at: now, target: target.clone() });
            last = target;
        }
        now = now.after(MINUTE);
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// On both sides of every change point over two years there is exactly one target, they differ,
    /// and each holds up to the next change point.
    #[test]
    fn each_change_point_parts_two_targets(schedule in any_schedule()) {
        for name in ZONES {
            let zone = zone(name);
            let (from, until) = (at(YEARS.0), at(YEARS.1));
            let points = changes(&schedule, &zone, from, until);
            let mut holds = target_at(&schedule, &zone, from.before(INSTANT));
            let mut since = from;
            for point in &points {
                prop_assert!(since <= point.at && point.at < until);
                let before = target_at(&schedule, &zone, point.at.before(INSTANT));
                prop_assert_eq!(&before, &holds, "{} just before {}", name, point.at);
                prop_assert_eq!(&target_at(&schedule, &zone, point.at), &point.target);
                prop_assert_ne!(&point.target, &before);
                holds = point.target.clone();
                since = point.at;
            }
            prop_assert_eq!(target_at(&schedule, &zone, until.before(INSTANT)), holds);
        }
    }

    /// The change points are those that a scan of every minute finds, around the nights on which
    /// clocks change and in any other week.
    #[test]
    fn change_points_are_those_of_a_scan(schedule in any_schedule(), week in 0..104_u64) {
        for name in ZONES {
            let zone = zone(name);
            let year = (at(YEARS.0), at(YEARS.1));
            let around = zone.transitions(year.0, year.1).map(|change| change.before(26 * HOUR));
            let sampled = year.0.after(u32::try_from(week).unwrap() * 7 * DAY);
            for from in around.chain([sampled]) {
                let until = from.after(52 * HOUR);
                let exact = changes(&schedule, &zone, from, until);
                prop_assert_eq!(exact, scanned(&schedule, &zone, from, until), "{} {}", name, from);
            }
        }
    }

    /// Neighbouring ranges together have the changes of the whole.
    #[test]
    fn ranges_add_up(schedule in any_schedule(), cut in 0..(365 * 24 * 60_u32)) {
        let zone = zone("Australia/Lord_Howe");
        let (from, until) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let middle = from.after(cut * MINUTE);
        let mut parts = changes(&schedule, &zone, from, middle);
        parts.extend(changes(&schedule, &zone, middle, until));
        prop_assert_eq!(parts, changes(&schedule, &zone, from, until));
    }

    /// The lint reports an entry as unreachable if and only if it applies in no minute of the week.
    #[test]
    fn unreachable_is_exact(schedule in any_schedule()) {
        let minutes = Weekday::ALL.into_iter().flat_map(|day| {
            (0..TimeOfDay::COUNT).map(move |m| (day, TimeOfDay::from_minutes(m).unwrap()))
        });
        let reached: BTreeSet<_> = minutes.map(|(day, time)| schedule.entry_at(day, time)).collect();
        let findings = lint(&schedule);
        let has = |kind| findings.iter().any(|finding| finding.kind == kind);
        for index in 0..schedule.entries.len() {
            let is_reported = findings.iter().any(|finding| {
                finding.entry == Some(index) && finding.kind == ScheduleFindingKind::Unreachable
            });
            prop_assert_eq!(is_reported, !reached.contains(&Some(index)), "entry {}", index);
        }
        let bare = has(ScheduleFindingKind::NoFallback) || has(ScheduleFindingKind::Empty);
        prop_assert_eq!(bare, reached.contains(&None));
    }
}

#[test]
fn a_year_in_every_zone_has_no_gap() {
    let (from, until) = (at("2026-01-01T00:00:00Z"), at("2027-01-01T00:00:00Z"));
    let names = Zone::names();
    assert!(names.len() > 500, "{} zones", names.len());
    for name in names {
        let zone = Zone::parse(&name).unwrap();
        let seeds = Schedule { zone: name.clone(), ..seeds() };
        let mut holds = target_at(&seeds, &zone, from.before(INSTANT));
        let points = changes(&seeds, &zone, from, until);
        assert!(points.len() > 600, "{name} has {} changes", points.len());
        for point in points {
            assert_eq!(target_at(&seeds, &zone, point.at.before(INSTANT)), holds, "{name}");
            assert_eq!(target_at(&seeds, &zone, point.at), point.target, "{name}");
            assert!(point.target.entry.is_some());
            holds = point.target;
        }
    }
}

#[test]
fn a_clock_put_back_over_midnight_is_followed() {
    // Until 2011 St. John's set its clocks back at one minute past midnight, to the day before.
    let john = Schedule { zone: "America/St_Johns".to_owned(), ..seeds() };
    let zone = zone(&john.zone);
    let change = zone.transitions(at("2010-10-01T00:00:00Z"), at("2010-12-01T00:00:00Z")).next();
    let change = change.unwrap();
    for minutes in 1..90 {
        let from = change.before(2 * HOUR);
        let until = change.after(minutes * MINUTE);
        assert_eq!(changes(&john, &zone, from, until), scanned(&john, &zone, from, until));
    }
}

#[test]
fn the_ends_of_time_are_no_trouble() {
    for millis in [i64::MIN, i64::MAX] {
        let end = Timestamp::from_millis(millis);
        let zone = zone("Europe/Paris");
        let _: Vec<ChangePoint> = changes(&seeds(), &zone, end.before(DAY), end.after(DAY));
    }
}
