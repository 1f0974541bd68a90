//! Records the program's files in the runner's directory, for jobs that run as the agent's user.
//!
//! The agent records them before the first listener starts; every later file is a job's. The
//! program reads optional files such as `.env`, so a job that adds a file can change the program's
//! behaviour.
//!
//! Not here: keeping jobs from changing the program's files (`confine`).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::hook::SCRIPT;
use super::leftovers::absent_is_fine;
use super::process::REGISTRATION;

/// The file in the state directory with the recorded entries.
const NOTED: &str = "program.json";
/// Directories that jobs and the program write to.
const WRITTEN: &[&str] = &["_work", "_diag"];

/// The recorded entries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Noted {
    #[serde(rename = "1")]
    V1 {
        /// The entries by name; a link with its target.
        entries: BTreeMap<String, Option<PathBuf>>,
    },
}

/// Records the entries of the program's directory, once.
pub(super) fn note(root: &Path, state: &Path) -> io::Result<()> {
    let path = state.join(NOTED);
    if path.exists() {
        return Ok(());
    }
    let text = serde_json::to_string(&Noted::V1 { entries: entries(root)? })?;
    let next = path.with_extension("next");
    fs::write(&next, text)?;
    fs::rename(next, path)
}

/// The paths that jobs must not change: the recorded entries, and the hook, which the agent writes
/// later.
pub(super) fn parts(root: &Path, state: &Path) -> io::Result<Vec<PathBuf>> {
    let Some(Noted::V1 { entries }) = noted(state)? else { return Ok(Vec::new()) };
    let names = entries.keys().map(String::as_str).filter(|name| *name != SCRIPT).chain([SCRIPT]);
    let is_own = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| !found.is_symlink());
    Ok(names.map(|name| root.join(name)).filter(is_own).collect())
}

/// Removes entries that were not recorded, and restores links.
pub(super) fn restore(root: &Path, state: &Path) -> io::Result<()> {
    let Some(Noted::V1 { entries: noted }) = noted(state)? else { return Ok(()) };
    for (name, link) in entries(root)? {
        if noted.get(&name) == Some(&link) {
            continue;
        }
        let path = root.join(name);
        let is_dir = path.symlink_metadata()?.is_dir();
        absent_is_fine(if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) })?;
    }
    for (name, link) in noted {
        let path = root.join(name);
        match link {
            Some(to) if path.symlink_metadata().is_err() => std::os::unix::fs::symlink(to, path)?,
            _ => {}
        }
    }
    Ok(())
}

fn noted(state: &Path) -> io::Result<Option<Noted>> {
    match fs::read(state.join(NOTED)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => Ok(Some(serde_json::from_slice(&read?)?)),
    }
}

fn entries(root: &Path) -> io::Result<BTreeMap<String, Option<PathBuf>>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let name = entry.file_name();
        if REGISTRATION.iter().chain(WRITTEN).any(|other| name == *other) {
            continue;
        }
        let name = name.into_string().map_err(|_| {
            let text = "a name in the runner's directory is not UTF-8; remove that file";
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        let link = entry.file_type()?.is_symlink().then(|| fs::read_link(entry.path()));
        all.insert(name, link.transpose()?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_a_job_added_to_the_programs_directory_goes_and_what_is_the_programs_stays() {
        let place = tempfile::tempdir().unwrap();
        let (root, state) = (place.path().join("runner"), place.path().join("state"));
        fs::create_dir_all(root.join("externals.2")).unwrap();
        fs::create_dir_all(root.join("_work")).unwrap();
        fs::create_dir_all(&state).unwrap();
        fs::write(root.join("run.sh"), "").unwrap();
        symlink("externals.2", root.join("externals")).unwrap();
        restore(&root, &state).unwrap();
        note(&root, &state).unwrap();

        fs::write(root.join(".env"), "NODE_OPTIONS=--import=data:text/javascript,evil").unwrap();
        fs::create_dir(root.join("bin")).unwrap();
        fs::remove_file(root.join("externals")).unwrap();
        symlink("/evil", root.join("externals")).unwrap();
        fs::write(root.join(SCRIPT), "").unwrap();
        fs::write(root.join(".runner"), "").unwrap();
        note(&root, &state).unwrap();
        let parts: Vec<PathBuf> = parts(&root, &state).unwrap();
        assert_eq!(parts, ["externals.2", "run.sh", SCRIPT].map(|name| root.join(name)));

        restore(&root, &state).unwrap();
        let mut left: Vec<String> = entries(&root).unwrap().into_keys().collect();
        left.sort();
        assert_eq!(left, ["externals", "externals.2", "run.sh"]);
        assert_eq!(fs::read_link(root.join("externals")).unwrap(), Path::new("externals.2"));
        assert!(root.join("_work").exists() && root.join(".runner").exists());
    }

    #[test]
    fn what_is_noted_keeps_parsing() {
        let text = r#"{"v":"1","entries":{"bin":"bin.2","run.sh":null}}"#;
        let Noted::V1 { entries } = serde_json::from_str(text).unwrap();
        assert_eq!(entries["bin"], Some(PathBuf::from("bin.2")));
        assert_eq!(entries["run.sh"], None);
    }
}
