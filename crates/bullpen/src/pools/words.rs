//! Words for what a plan says and a journal remembers, and lines that fit a terminal.
//!
//! Not here: notes, which have words of their own (`bullpen_core::pool::Note`).

use std::collections::BTreeMap;

use bullpen_core::explain::span;
use bullpen_core::ids::InstanceId;
use bullpen_core::pool::{Action, ActionTaken, Cause, StopWhy};
use bullpen_core::time::Timestamp;

/// What every terminal has.
const COLUMNS: usize = 80;
/// Where text begins, after the word that says what it is.
const INDENT: usize = 12;

/// A text under a word, in as many lines as it takes.
pub(super) fn lines(label: &str, text: &str) -> String {
    let mut lines = vec![format!("  {label:<9}")];
    let mut is_bare = true;
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if !is_bare && line + 1 + word.chars().count() > COLUMNS {
            lines.push(" ".repeat(INDENT - 1));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
        is_bare = false;
    }
    lines.join("\n")
}

/// An action, with the machines that it touches.
pub(super) fn action(action: &Action) -> Vec<String> {
    let of = |what: String, ids: Vec<&InstanceId>| {
        let ids: Vec<&str> = ids.into_iter().map(InstanceId::as_str).collect();
        format!("{what}: {}", ids.join(" "))
    };
    let touched = || action.touches();
    let count = touched().len();
    match action {
        Action::Terminate { cause, .. } => {
            vec![of(format!("end {count}, {}", ending(*cause)), touched())]
        }
        Action::KeepHot(_) => vec![of(format!("keep {count} hot, warm now"), touched())],
        Action::KeepStopped(_) => vec![of(format!("keep {count} as stopped"), touched())],
        Action::Stop(stops) => {
            let mut by_why: BTreeMap<StopWhy, Vec<&InstanceId>> = BTreeMap::new();
            for (id, why) in stops {
                by_why.entry(*why).or_default().push(id);
            }
            let told = by_why.into_iter();
            told.map(|(why, ids)| of(format!("stop {}, {}", ids.len(), stopping(why)), ids))
                .collect()
        }
        Action::Create { usage, hot, stopped } => vec![format!(
            "launch {} {}: {hot} to stay hot, {stopped} to be stopped",
            hot + stopped,
            usage.as_str()
        )],
    }
}

const fn ending(cause: Cause) -> &'static str {
    match cause {
        Cause::Error => "of no use",
        Cause::Dangling => "not ready in time, or past their time",
        Cause::Outdated => "built otherwise than they would be now",
        Cause::Excess => "more than wanted",
    }
}

const fn stopping(why: StopWhy) -> &'static str {
    match why {
        StopWhy::WarmedUp => "warm now",
        StopWhy::FoundRunning => "found running",
        StopWhy::Again => "once more",
    }
}

/// What was done, how long ago, and what was in the way.
pub(super) fn deed(deed: &ActionTaken, now: Timestamp) -> String {
    let ActionTaken { at, act, why, planned, done, said } = deed;
    let count = if done == planned { done.to_string() } else { format!("{done} of {planned}") };
    let what = match act.as_str() {
        "terminate" => format!("ended {count} ({why})"),
        "keep-hot" => format!("{count} became hot"),
        "keep-stopped" => format!("{count} became stopped"),
        "stop" => format!("stopping {count} ({why})"),
        "create" => format!("launched {count} ({why})"),
        // A newer version's.
        other => format!("{other} {count} ({why})"),
    };
    let said = said.as_ref().map_or_else(String::new, |said| format!("; in the way: {said}"));
    format!("{} ago: {what}{said}", span(now.since(*at)))
}

#[cfg(test)]
mod tests {
    use bullpen_core::class::Usage;
    use bullpen_core::instance::EndReason;
    use bullpen_core::pool::MachineEnding;

    use super::*;

    fn ids(count: usize) -> Vec<InstanceId> {
        (0..count).map(|number| InstanceId::new(format!("i-{number:017}"))).collect()
    }

    #[test]
    fn every_line_fits_and_says_everything() {
        let text = &action(&Action::KeepHot(ids(9)))[0];
        let told = lines("does", text);
        assert!(told.lines().count() > 1 && told.lines().all(|line| line.len() <= COLUMNS));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&told)[1..], words(text));
        assert!(told.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))), "{told}");
        let long = "x".repeat(90);
        assert_eq!(lines("waits", &long), format!("  waits     {long}"));
    }

    #[test]
    fn actions_have_words_and_ids() {
        let [one, two] = [InstanceId::new("i-1"), InstanceId::new("i-2")];
        let endings = vec![MachineEnding { id: one.clone(), why: EndReason::Surplus }];
        let terminate = Action::Terminate { cause: Cause::Excess, endings };
        assert_eq!(action(&terminate), ["end 1, more than wanted: i-1"]);
        let stop = Action::Stop(vec![(one, StopWhy::Again), (two, StopWhy::WarmedUp)]);
        assert_eq!(action(&stop), ["stop 1, warm now: i-2", "stop 1, once more: i-1"]);
        let create = Action::Create { usage: Usage::OnDemand, hot: 2, stopped: 1 };
        assert_eq!(action(&create), ["launch 3 on-demand: 2 to stay hot, 1 to be stopped"]);
    }

    #[test]
    fn deeds_have_an_age_and_what_was_in_the_way() {
        let at = Timestamp::from_millis(0);
        let (act, why) = ("create".to_owned(), "missing".to_owned());
        let mut done = ActionTaken { at, act, why, planned: 2, done: 2, said: None };
        assert_eq!(deed(&done, Timestamp::from_millis(42_000)), "42 s ago: launched 2 (missing)");
        done.done = 1;
        done.said = Some("no capacity".to_owned());
        let told = deed(&done, Timestamp::from_millis(42_000));
        assert_eq!(told, "42 s ago: launched 1 of 2 (missing); in the way: no capacity");
    }
}
