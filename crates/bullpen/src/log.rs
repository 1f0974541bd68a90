//! The log: what the engine notes while it works, for whoever looks for a cause later.
//!
//! `BULLPEN_LOG` says how much: `off`, `error`, `warn`, `info`, `debug` or `trace`. Commands keep
//! silent unless it is set; what nobody watches, the service, agents and supervisors, notes at `info`.
//! `BULLPEN_LOG_FORMAT=json` makes every line an object, for machines to read.
//!
//! Not here: what people are told (`render`).

use bullpen_agent::log::{JsonLine, OneLine};
use tracing::level_filters::LevelFilter;

use crate::inputs::Environment;

/// The variable that says how much.
const VARIABLE: &str = "BULLPEN_LOG";

/// The variable that says how lines look.
const FORMAT: &str = "BULLPEN_LOG_FORMAT";

/// Begins to note, this much unless the environment says otherwise.
pub(crate) fn begin(environment: &Environment, unless_said: LevelFilter) {
    let said = environment.get(VARIABLE).and_then(|text| text.parse::<LevelFilter>().ok());
    let level = said.unwrap_or(unless_said);
    if level == LevelFilter::OFF {
        return;
    }
    let lines = tracing_subscriber::fmt().with_max_level(level);
    let lines = lines.with_ansi(false).with_target(false);
    let begun = if environment.get(FORMAT).is_some_and(|format| format == "json") {
        lines.json().flatten_event(true).with_writer(|| JsonLine(std::io::stderr())).try_init()
    } else {
        lines.with_writer(|| OneLine(std::io::stderr())).try_init()
    };
    // A second subscriber is refused, and the first goes on.
    if begun.is_err() {
        tracing::debug!("the log has begun already");
    }
}
