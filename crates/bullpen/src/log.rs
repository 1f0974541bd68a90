//! Sets up the log on stderr.
//!
//! `BULLPEN_LOG` sets the level: `off`, `error`, `warn`, `info`, `debug` or `trace`. Without it the
//! service, agents and supervisors log at `info`, and all other commands log nothing.
//! `BULLPEN_LOG_FORMAT=json` makes every line an object, for machines to read.
//!
//! Not here: the output for people (`render`).

use bullpen_agent::log::{JsonLine, OneLine};
use tracing::level_filters::LevelFilter;

use crate::inputs::Environment;

/// The variable with the level.
const LEVEL: &str = "BULLPEN_LOG";

/// The variable with the format of lines.
const FORMAT: &str = "BULLPEN_LOG_FORMAT";

/// Starts the log, at the default level unless the environment has another.
pub(crate) fn begin(environment: &Environment, default: LevelFilter) {
    let given = environment.get(LEVEL).and_then(|text| text.parse::<LevelFilter>().ok());
    let level = given.unwrap_or(default);
    if level == LevelFilter::OFF {
        return;
    }
    let lines = tracing_subscriber::fmt().with_max_level(level);
    let lines = lines.with_ansi(false).with_target(false);
    // The subscriber would print that it cannot print, which panics where the disk is full.
    let lines = lines.log_internal_errors(false);
    let started = if environment.get(FORMAT).is_some_and(|format| format == "json") {
        lines.json().flatten_event(true).with_writer(|| JsonLine(std::io::stderr())).try_init()
    } else {
        lines.with_writer(|| OneLine(std::io::stderr())).try_init()
    };
    // `tracing` refuses a second subscriber and keeps the first.
    if started.is_err() {
        tracing::debug!("log already started");
    }
}
