//! Texts for planned and past actions, and lines that fit a terminal.
//!
//! Not here: the texts of notes (`bullpen_core::pool::Note`).

use std::collections::BTreeMap;

use bullpen_core::explain::span;
use bullpen_core::ids::InstanceId;
use bullpen_core::pool::{Action, ActionTaken, Cause, StopWhy};
use bullpen_core::time::Timestamp;

/// The columns of the narrowest terminal.
const COLUMNS: usize = 80;
/// The column where text begins, after its label.
const INDENT: usize = 12;

/// A label and its text, wrapped to the terminal.
pub(super) fn lines(label: &str, text: &str) -> String {
    let mut lines = vec![format!("  {label:<9}")];
    let mut is_first = true;
    for word in text.split_whitespace() {
        let line = lines.last().map_or(0, |line| line.chars().count());
        if !is_first && line + 1 + word.chars().count() > COLUMNS {
            lines.push(" ".repeat(INDENT - 1));
        }
        if let Some(line) = lines.last_mut() {
            line.push(' ');
            line.push_str(word);
        }
        is_first = false;
    }
    lines.join("\n")
}

/// The text of a planned action, with the machines that it touches.
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
            let text = |(why, ids): (StopWhy, Vec<&InstanceId>)| {
                of(format!("stop {}, {}", ids.len(), stopping(why)), ids)
            };
            by_why.into_iter().map(text).collect()
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
        Cause::Error => "warm-up or start failed",
        Cause::Dangling => "not ready in time, or past their deadline",
        Cause::Outdated => "outdated",
        Cause::Excess => "more than the target",
    }
}

const fn stopping(why: StopWhy) -> &'static str {
    match why {
        StopWhy::WarmedUp => "warm now",
        StopWhy::FoundRunning => "found running",
        StopWhy::Again => "once more",
    }
}

/// The text of a past action: its age, its count, and the error if it failed in part.
pub(super) fn action_taken(action: &ActionTaken, now: Timestamp) -> String {
    let ActionTaken { at, act, why, planned, done, said } = action;
    let count = if done == planned { done.to_string() } else { format!("{done} of {planned}") };
    let what = match act.as_str() {
        "terminate" => format!("ended {count} ({why})"),
        "keep-hot" => format!("{count} became hot"),
        "keep-stopped" => format!("{count} became stopped"),
        "stop" => format!("stopping {count} ({why})"),
        "create" => format!("launched {count} ({why})"),
        // A newer version wrote it.
        other => format!("{other} {count} ({why})"),
    };
    let error = said.as_ref().map_or_else(String::new, |said| format!("; error: {said}"));
    format!("{} ago: {what}{error}", span(now.since(*at)))
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
    fn every_line_fits_and_no_word_is_lost() {
        let text = &action(&Action::KeepHot(ids(9)))[0];
        let wrapped = lines("does", text);
        assert!(wrapped.lines().count() > 1 && wrapped.lines().all(|line| line.len() <= COLUMNS));
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&wrapped)[1..], words(text));
        let is_indented = |line: &str| line.starts_with(&" ".repeat(INDENT));
        assert!(wrapped.lines().skip(1).all(is_indented), "{wrapped}");
        let long = "x".repeat(90);
        assert_eq!(lines("waits", &long), format!("  waits     {long}"));
    }

    #[test]
    fn actions_have_words_and_ids() {
        let [first, second] = [InstanceId::new("i-1"), InstanceId::new("i-2")];
        let endings = vec![MachineEnding { id: first.clone(), why: EndReason::Surplus }];
        let terminate = Action::Terminate { cause: Cause::Excess, endings };
        assert_eq!(action(&terminate), ["end 1, more than the target: i-1"]);
        let stop = Action::Stop(vec![(first, StopWhy::Again), (second, StopWhy::WarmedUp)]);
        assert_eq!(action(&stop), ["stop 1, warm now: i-2", "stop 1, once more: i-1"]);
        let create = Action::Create { usage: Usage::OnDemand, hot: 2, stopped: 1 };
        assert_eq!(action(&create), ["launch 3 on-demand: 2 to stay hot, 1 to be stopped"]);
    }

    #[test]
    fn actions_taken_have_an_age_and_an_error() {
        let at = Timestamp::from_millis(0);
        let (act, why) = ("create".to_owned(), "missing".to_owned());
        let mut taken = ActionTaken { at, act, why, planned: 2, done: 2, said: None };
        let now = Timestamp::from_millis(42_000);
        assert_eq!(action_taken(&taken, now), "42 s ago: launched 2 (missing)");
        taken.done = 1;
        taken.said = Some("no capacity".to_owned());
        let text = action_taken(&taken, now);
        assert_eq!(text, "42 s ago: launched 1 of 2 (missing); error: no capacity");
    }
}
