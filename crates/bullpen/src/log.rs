//! The log: what the engine notes while it works, for whoever looks for a cause later.
//!
//! `BULLPEN_LOG` says how much: `off`, `error`, `warn`, `info`, `debug` or `trace`. Commands keep
//! silent unless it is set; what nobody watches, agents and supervisors, notes at `info` into the log
//! beside its machine.
//!
//! Not here: what people are told (`render`).

use tracing::level_filters::LevelFilter;

use crate::inputs::Environment;

/// The variable that says how much.
const VARIABLE: &str = "BULLPEN_LOG";

/// Begins to note, this much unless the environment says otherwise.
pub(crate) fn begin(environment: &Environment, unless_said: LevelFilter) {
    let said = environment.get(VARIABLE).and_then(|text| text.parse::<LevelFilter>().ok());
    let level = said.unwrap_or(unless_said);
    if level == LevelFilter::OFF {
        return;
    }
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr);
    // A second subscriber is refused, and the first goes on.
    if lines.with_ansi(false).with_target(false).try_init().is_err() {
        tracing::debug!("the log has begun already");
    }
}
