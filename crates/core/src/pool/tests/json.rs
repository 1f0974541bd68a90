//! A plan as JSON, which scripts read and the service stores.
//!
//! Not here: what a plan says and when.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::ids::ClassName;
use crate::instance::EndReason;

/// Asserts that a value has this text, and that the text is read back as the value.
fn stays<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, text: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), text);
    assert_eq!(serde_json::from_str::<T>(text).unwrap(), *value, "{text}");
}

fn id(id: &str) -> InstanceId {
    InstanceId::new(id)
}

#[test]
fn each_action_has_a_form_that_stays() {
    let endings = |why| vec![MachineEnding { id: id("i-1"), why }];
    for (cause, why, text) in [
        (
            Cause::Error,
            EndReason::FailedWarmUp,
            r#""error","endings":[{"id":"i-1","why":"failed-warm-up"}]"#,
        ),
        (
            Cause::Dangling,
            EndReason::DeadlinePassed,
            r#""dangling","endings":[{"id":"i-1","why":"deadline-passed"}]"#,
        ),
        (
            Cause::Outdated,
            EndReason::Outdated,
            r#""outdated","endings":[{"id":"i-1","why":"outdated"}]"#,
        ),
        (Cause::Excess, EndReason::Surplus, r#""excess","endings":[{"id":"i-1","why":"surplus"}]"#),
    ] {
        let text = format!(r#"{{"action":"terminate","of":{{"cause":{text}}}}}"#);
        stays(&Action::Terminate { cause, endings: endings(why) }, &text);
    }
    stays(
        &Action::KeepHot(vec![id("i-1"), id("i-2")]),
        r#"{"action":"keep-hot","of":["i-1","i-2"]}"#,
    );
    stays(&Action::KeepStopped(vec![id("i-1")]), r#"{"action":"keep-stopped","of":["i-1"]}"#);
    let stops = vec![
        (id("i-1"), StopWhy::WarmedUp),
        (id("i-2"), StopWhy::FoundRunning),
        (id("i-3"), StopWhy::Again),
    ];
    stays(
        &Action::Stop(stops),
        r#"{"action":"stop","of":[["i-1","warmed-up"],["i-2","found-running"],["i-3","again"]]}"#,
    );
    stays(
        &Action::Create { usage: Usage::OnDemand, hot: 2, stopped: 1 },
        r#"{"action":"create","of":{"usage":"on-demand","hot":2,"stopped":1}}"#,
    );
}

#[test]
fn each_note_has_a_form_that_stays_and_is_called_by_its_code() {
    let until = at(0);
    let ceiling = |scope| Note::Ceiling { scope, max: 4, used: 3, short: 2 };
    let notes = [
        (Note::Paused, r#"{"note":"paused"}"#),
        (Note::Draining { in_use: 1 }, r#"{"note":"draining","in-use":1}"#),
        (Note::Removed { in_use: 1 }, r#"{"note":"removed","in-use":1}"#),
        (Note::NoEntry, r#"{"note":"no-entry"}"#),
        (
            Note::NoCapacity { short: 1, until },
            r#"{"note":"no-capacity","short":1,"until":"2026-01-01T12:00:00Z"}"#,
        ),
        (ceiling(Scope::Stack), r#"{"note":"ceiling","scope":"stack","max":4,"used":3,"short":2}"#),
        (
            ceiling(Scope::Class(ClassName::new("large"))),
            r#"{"note":"ceiling","scope":{"class":"large"},"max":4,"used":3,"short":2}"#,
        ),
        (
            ceiling(Scope::Pool(pool())),
            r#"{"note":"ceiling","scope":{"pool":"ci"},"max":4,"used":3,"short":2}"#,
        ),
        (
            Note::Quarantined { failed: 3, until },
            r#"{"note":"quarantined","failed":3,"until":"2026-01-01T12:00:00Z"}"#,
        ),
        (Note::Probing { failed: 3 }, r#"{"note":"probing","failed":3}"#),
        (
            Note::RolloutPaused { failed: 1, old: 2 },
            r#"{"note":"rollout-paused","failed":1,"old":2}"#,
        ),
        (Note::RollingOut { old: 2 }, r#"{"note":"rolling-out","old":2}"#),
        (Note::Expiring { count: 2 }, r#"{"note":"expiring","count":2}"#),
        (Note::Launching { count: 2 }, r#"{"note":"launching","count":2}"#),
        (Note::WarmingUp { count: 2 }, r#"{"note":"warming-up","count":2}"#),
        (Note::Stopping { count: 2 }, r#"{"note":"stopping","count":2}"#),
        (
            Note::Fenced { count: 2, until },
            r#"{"note":"fenced","count":2,"until":"2026-01-01T12:00:00Z"}"#,
        ),
        (Note::Unseen { count: 2 }, r#"{"note":"unseen","count":2}"#),
    ];
    for (note, text) in notes {
        stays(&note, text);
        assert!(text.starts_with(&format!(r#"{{"note":"{}""#, note.code())), "{text}");
    }
}

#[test]
fn a_plan_is_its_actions_and_its_notes() {
    let plan = plan(&observed(vec![warm("i-1"), warming("i-2")]), &desired(2, 1), at(NOW));
    stays(
        &plan,
        concat!(
            r#"{"actions":[{"action":"keep-hot","of":["i-1"]},"#,
            r#"{"action":"create","of":{"usage":"on-demand","hot":0,"stopped":1}}],"#,
            r#""notes":[{"note":"warming-up","count":1}]}"#,
        ),
    );
}
