//! Where `act` is: named by `BULLPEN_ACT`, which the gate sets, or in the gate's cache.
//!
//! Not here: installing it (`cargo xtask tools`).

use std::path::PathBuf;

const MISSING: &str = "act is not there; `cargo xtask tools` installs it, once";

#[expect(clippy::disallowed_methods, reason = "a test finds its tool as the gate would")]
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

pub(crate) fn act() -> PathBuf {
    variable("BULLPEN_ACT").or_else(cached).filter(|path| path.exists()).expect(MISSING)
}

/// The program in the gate's cache, of the last version if there are several.
fn cached() -> Option<PathBuf> {
    let home = || Some(variable("HOME")?.join(".cache"));
    let tools = variable("XDG_CACHE_HOME").or_else(home)?.join("bullpen/tools");
    let entries = std::fs::read_dir(tools).ok()?.flatten().map(|entry| entry.path());
    let is_act = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("act-"))
    };
    entries.filter(is_act).max().map(|path| path.join("bin/act"))
}
