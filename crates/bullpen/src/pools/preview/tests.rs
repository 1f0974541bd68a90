//! Tests of the preview's text and JSON, with the example of the pools' documentation.
//!
//! Not here: evaluating schedules (`bullpen_core::schedule`).

use bullpen_core::schedule::{Match, ScheduleEntry, TimeOfDay, Weekday, Window};

use super::*;

fn window(from: &str, to: &str) -> Window {
    Window { from: TimeOfDay::parse(from).unwrap(), to: TimeOfDay::parse(to).unwrap() }
}

fn entry(name: &str, hot: u32, stopped: u32, when: Option<Match>) -> ScheduleEntry {
    ScheduleEntry { name: name.to_owned(), hot, stopped, when }
}

fn pools(schedules: Vec<(&str, Schedule)>) -> BTreeMap<PoolName, Pool> {
    let named = schedules.into_iter().map(|(name, schedule)| (PoolName::new(name), schedule));
    with_zones(named.collect()).unwrap()
}

fn small() -> Schedule {
    let days = |days: &[Weekday]| Some(days.iter().copied().collect());
    let nights = Match { days: days(&Weekday::ALL), window: Some(window("22:00", "06:00")) };
    let weekends = Match { days: days(&[Weekday::Saturday, Weekday::Sunday]), window: None };
    Schedule {
        zone: "Europe/Paris".to_owned(),
        entries: vec![
            entry("default", 1, 2, None),
            entry("nights", 0, 2, Some(nights)),
            entry("weekends", 0, 1, Some(weekends)),
        ],
    }
}

fn office() -> Schedule {
    let office = Match { days: None, window: Some(window("09:15", "17:00")) };
    Schedule { zone: "UTC".to_owned(), entries: vec![entry("office", 3, 0, Some(office))] }
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn an_instant_gives_one_object_per_pool() {
    let pools = pools(vec![("small-x64", small()), ("office", office())]);
    let objects = json_of(&pools, When::At(at("2026-05-30T23:30:00+02:00")));
    assert_eq!(
        objects,
        json!([
            { "pool": "office", "at": "2026-05-30T21:30:00Z", "entry": null, "hot": 0, "stopped": 0 },
            { "pool": "small-x64", "at": "2026-05-30T21:30:00Z", "entry": "weekends", "hot": 0, "stopped": 1 },
        ])
    );
}

#[test]
fn a_range_gives_every_change_point() {
    let when = When::Between(at("2026-05-29T20:00:00Z"), at("2026-06-01T12:00:00Z"));
    let objects = json_of(&pools(vec![("small-x64", small())]), when);
    assert_eq!(
        objects,
        json!([
            { "pool": "small-x64", "at": "2026-05-29T20:00:00Z", "entry": "nights", "hot": 0, "stopped": 2 },
            { "pool": "small-x64", "at": "2026-05-29T22:00:00Z", "entry": "weekends", "hot": 0, "stopped": 1 },
            { "pool": "small-x64", "at": "2026-05-31T22:00:00Z", "entry": "nights", "hot": 0, "stopped": 2 },
            { "pool": "small-x64", "at": "2026-06-01T04:00:00Z", "entry": "default", "hot": 1, "stopped": 2 },
        ])
    );
}

#[test]
fn the_picture_shows_a_week() {
    let when = When::Between(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"));
    let expected = "\
small-x64 (Europe/Paris)

           00    03    06    09    12    15    18    21
monday     bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbb
tuesday    bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbb
wednesday  bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbb
thursday   bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbb
friday     bbbbbbbbbbbbaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbb
saturday   cccccccccccccccccccccccccccccccccccccccccccccccc
sunday     cccccccccccccccccccccccccccccccccccccccccccccccc

a  default   hot 1  stopped 2  at any other time
b  nights    hot 0  stopped 2  every day 22:00 to 06:00
c  weekends  hot 0  stopped 1  saturday, sunday

saturday   2026-03-28 13:00:00 +01:00  hot 0  stopped 1  weekends
monday     2026-03-30 00:00:00 +02:00  hot 0  stopped 2  nights
monday     2026-03-30 06:00:00 +02:00  hot 1  stopped 2  default";
    assert_eq!(text_of(&pools(vec![("small-x64", small())]), when), expected);
}

#[test]
fn half_hours_with_several_entries_or_none_are_marked() {
    let text = text_of(&pools(vec![("office", office())]), When::At(at("2026-05-30T08:00:00Z")));
    assert!(
        text.contains("\nmonday     ..................*aaaaaaaaaaaaaaa..............\n"),
        "{text}"
    );
    assert!(text.contains("\na  office  hot 3  stopped 0  every day 09:15 to 17:00\n"), "{text}");
    assert!(text.contains("\n*  more than one entry within the half-hour\n"), "{text}");
    assert!(text.contains("\n.  nothing matches: hot 0  stopped 0\n"), "{text}");
    assert!(text.ends_with("hot 0  stopped 0  (nothing matches)"), "{text}");
}

#[test]
fn an_unknown_pool_or_zone_is_named_in_the_error() {
    let error = selected(pools(vec![("small-x64", small())]), Some("smal-x64")).unwrap_err();
    assert_eq!(error.what, "there is no pool \"smal-x64\"; did you mean \"small-x64\"?");
    assert_eq!(error.hint.as_deref(), Some("pools: small-x64"));
    let mars = Schedule { zone: "Mars".to_owned(), ..small() };
    let error = with_zones([(PoolName::new("p"), mars)].into()).unwrap_err();
    assert!(error.what.starts_with("pool p: \"Mars\" is not an IANA time zone"), "{}", error.what);
}

#[test]
fn ranges_are_checked() {
    let args = |at: Option<&str>, from: Option<&str>, until: Option<&str>| PreviewArgs {
        config: PathBuf::new(),
        pool: None,
        at: at.map(self::at),
        from: from.map(self::at),
        until: until.map(self::at),
        json: false,
    };
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    assert_eq!(When::of(&args(Some(early), None, None)), Ok(When::At(at(early))));
    let range = When::Between(at(early), at(late));
    assert_eq!(When::of(&args(None, Some(early), Some(late))), Ok(range));
    let wrong = When::of(&args(None, Some(late), Some(early)));
    assert_eq!(wrong, Err("--until is not after --from"));
    let long = When::of(&args(None, Some(early), Some("2056-01-01T00:00:00Z")));
    assert_eq!(long, Err("the range is longer than ten years"));
}
