//! Draws a week of a schedule: a row for each day, a character for each half-hour, and a legend.
//!
//! Not here: instants. The picture uses the wall clock and is the same every week.

use std::fmt::Write as _;

use bullpen_core::schedule::{Schedule, ScheduleEntry, TimeOfDay, Weekday, Window};

/// A letter for each entry; the entries after the last letter share it. `NOTHING` and `SEVERAL` are
/// not among them.
const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789#";
/// No entry matches.
const NOTHING: char = '.';
/// More than one entry within one half-hour.
const SEVERAL: char = '*';
const CELL_MINUTES: u16 = 30;

/// The week and the legend.
pub(super) fn week(schedule: &Schedule) -> String {
    let mut picture = format!("{:<11}", "");
    for hour in (0..24).step_by(3) {
        let _ = write!(picture, "{hour:02}    ");
    }
    picture.truncate(picture.trim_end().len());
    let mut used = String::new();
    for day in Weekday::ALL {
        let cells: String = (0..TimeOfDay::COUNT)
            .step_by(usize::from(CELL_MINUTES))
            .map(|from| cell(schedule, day, from))
            .collect();
        let _ = write!(picture, "\n{:<9}  {cells}", day.as_str());
        used.push_str(&cells);
    }
    picture.push('\n');
    picture.push_str(&legend(schedule, &used));
    picture
}

fn cell(schedule: &Schedule, day: Weekday, from: u16) -> char {
    let minutes = (from..from + CELL_MINUTES).filter_map(TimeOfDay::from_minutes);
    let mut entries = minutes.map(|time| schedule.entry_at(day, time));
    let first = entries.next().flatten();
    if entries.any(|other| other != first) { SEVERAL } else { first.map_or(NOTHING, letter) }
}

fn letter(index: usize) -> char {
    LETTERS.chars().nth(index).unwrap_or('#')
}

fn legend(schedule: &Schedule, used: &str) -> String {
    let name = |entry: &ScheduleEntry| entry.name.escape_debug().to_string();
    let width = schedule.entries.iter().map(|entry| name(entry).chars().count()).max().unwrap_or(0);
    let mut lines: Vec<String> = schedule
        .entries
        .iter()
        .enumerate()
        .map(|(index, entry)| {
            let ScheduleEntry { hot, stopped, .. } = entry;
            let (letter, when) = (letter(index), when(entry));
            format!("{letter}  {:<width$}  hot {hot}  stopped {stopped}  {when}", name(entry))
        })
        .collect();
    if used.contains(SEVERAL) {
        lines.push(format!("{SEVERAL}  more than one entry within the half-hour"));
    }
    if used.contains(NOTHING) {
        lines.push(format!("{NOTHING}  nothing matches: hot 0  stopped 0"));
    }
    lines.iter().fold(String::new(), |text, line| text + "\n" + line)
}

/// The text for when an entry matches.
fn when(entry: &ScheduleEntry) -> String {
    let Some(when) = &entry.when else { return "at any other time".to_owned() };
    let days = match &when.days {
        None => "every day".to_owned(),
        Some(days) if days.len() == Weekday::ALL.len() => "every day".to_owned(),
        Some(days) if days.is_empty() => "never".to_owned(),
        Some(days) => days.iter().map(|day| day.as_str()).collect::<Vec<_>>().join(", "),
    };
    match when.window {
        Some(Window { from, to }) if from != to => format!("{days} {from} to {to}"),
        _ => days,
    }
}
