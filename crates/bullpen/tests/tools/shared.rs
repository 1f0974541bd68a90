//! Helpers for all worlds of processes: their `bullpen.toml`, and the processes of their machines.
//!
//! Not here: the worlds (`world` of each program).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bullpen_agent::runner::tree::{self, Identity};

/// A `bullpen.toml` with quick boots and a large capacity; if a limit is given twice, the last
/// counts.
pub(crate) fn stack_file<'a>(limits: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> String {
    let all: BTreeMap<&str, &str> = limits.into_iter().copied().collect();
    let quoted = |value: &str| match value.parse::<u32>() {
        Ok(number) => number.to_string(),
        Err(_) => format!("{value:?}"),
    };
    let lines: Vec<String> =
        all.iter().map(|(name, value)| format!("{name} = {}\n", quoted(value))).collect();
    // Jobs of most tests write to the test's directories; tests of isolation override this.
    let fleet = "[process-fleet]\nboot-delay = \"10ms\"\ncapacity = 200\nisolation = \"none\"\n";
    format!("{fleet}[limits]\n{}", lines.concat())
}

/// The processes of all machines of this directory.
pub(crate) fn processes_under(machines: &Path) -> Vec<Identity> {
    let Ok(machines) = machines.canonicalize() else { return Vec::new() };
    let mark = machines.to_str().expect("it is text").to_owned();
    tree::under(&BTreeSet::from([mark])).expect("this is Linux")
}
