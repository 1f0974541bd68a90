//! `bullpen sim run --scenario`: one story from a file, its transcript, and whether it held.
//!
//! A file without a transcript is only played; one with a transcript must be told the same way.
//!
//! Not here: the language and the play (`bullpen_sim::scenario`).

use std::path::Path;

use bullpen_sim::scenario::{Broken, Played, Script, Why, difference, run};
use serde_json::{Value, json};

use crate::exit::Exit;
use crate::render;

/// What to do about a file that cannot be read as a scenario.
const HINT: &str = "one verb per line, such as `provision 7.1.build count=2`; \
                    docs/scenarios.md shows them all";

/// Plays one file.
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

/// How a play that held differs from what its file says.
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
