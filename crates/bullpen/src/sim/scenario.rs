//! `bullpen sim run --scenario`: plays a scenario from a file and prints its transcript.
//!
//! It fails if an expectation does not hold, or if the file has another transcript.
//!
//! Not here: the language and its interpreter (`bullpen_sim::scenario`).

use std::path::Path;

use bullpen_sim::scenario::{Broken, Played, Script, Why, difference, run};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::render;

/// The advice for a file that is not a scenario.
const HINT: &str = "one verb per line, such as `provision 7.1.build count=2`; \
                    docs/scenarios.md shows them all";

/// Plays the scenario in a file.
pub(super) fn play(path: &Path, trace: bool, as_json: bool) -> Exit {
    let script = match read(path) {
        Ok(script) => script,
        Err((what, hint)) => {
            render::error(&format!("{}: {what}", path.display()), hint);
            return Exit::Usage;
        }
    };
    let played = run(&script, trace);
    let differs = differs(&script, &played);
    if as_json {
        render::json(&as_value(&played, differs.as_deref()).to_string());
    } else {
        print(&played, differs.as_deref());
    }
    if played.broken.is_none() && differs.is_none() { Exit::Done } else { Exit::Failed }
}

fn read(path: &Path) -> Result<Script, (String, Option<&'static str>)> {
    let text = std::fs::read_to_string(path).map_err(|error| (error.to_string(), None))?;
    Script::parse(&text).map_err(|error| (error.to_string(), Some(HINT)))
}

/// The difference between the transcript of a run that held and the transcript in its file.
fn differs(script: &Script, played: &Played) -> Option<String> {
    let compares = script.has_transcript() && played.broken.is_none();
    if compares { difference(&script.text, &played.transcript) } else { None }
}

fn print(played: &Played, differs: Option<&str>) {
    for line in &played.trace {
        render::data(line);
    }
    render::page(played.transcript.trim_end());
    if let Some(broken) = &played.broken {
        render::talk_page(&format!("\n{broken}"));
    }
    if let Some(differs) = differs {
        render::talk_page(&format!("\nnot what the file says:\n{differs}"));
    }
}

fn as_value(played: &Played, differs: Option<&str>) -> Value {
    json!({
        "held": played.broken.is_none() && differs.is_none(),
        "transcript": played.transcript.lines().collect::<Vec<_>>(),
        "broken": played.broken.as_ref().map(broken_value),
        "differs": differs,
        "trace": played.trace,
    })
}

fn broken_value(broken: &Broken) -> Value {
    let (unmet, violation, history) = match &broken.why {
        Why::Unmet(what) => (Some(what.clone()), None, Vec::new()),
        Why::Violated(violation, history) => (None, Some(violation.to_string()), history.clone()),
    };
    json!({
        "line": broken.line,
        "at_s": broken.at.as_secs(),
        "unmet": unmet,
        "violation": violation,
        "history": history,
    })
}
