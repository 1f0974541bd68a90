//! Checks whether a job that became root changed the system in places where the change outlives it.
//!
//! The agent cannot undo such a change, so the machine gets no further owner. This is no proof:
//! root can set times, change other places, or change the agent. It finds what installations and
//! careless jobs leave.
//!
//! Not here: files of the jobs' user (`super`).

use std::fs::Metadata;
use std::io;
use std::path::Path;

use super::{changed, entries};

/// Programs beside the system's own; GitHub's runner images let every user write to some of them.
pub(super) const TOOLS: &[&str] = &["/opt", "/usr/local"];
/// Settings, programs in the `PATH`, what the system starts by itself, and records of
/// installations.
const SYSTEM: &[&str] = &[
    "/boot",
    "/etc",
    "/root",
    "/srv",
    "/usr/bin",
    "/usr/lib/systemd",
    "/usr/sbin",
    "/var/lib/dpkg",
    "/var/lib/rpm",
    "/var/spool/cron",
];
/// The mode bit that lets every user write.
const WORLD_WRITABLE: u32 = 0o002;
/// The most entries to check: an owner waits, and the rest counts as not clean. A large image has
/// some hundred thousand.
const ENTRIES_MAX: usize = 1_000_000;

/// An error if something there changed since, or if there are too many entries.
pub(super) fn are_unchanged(root: &Path, since: (i64, i64)) -> io::Result<()> {
    let mut left = ENTRIES_MAX;
    for place in SYSTEM.iter().chain(TOOLS) {
        is_unchanged(&root.join(place.trim_start_matches('/')), since, &mut left)?;
    }
    Ok(())
}

fn is_unchanged(directory: &Path, since: (i64, i64), left: &mut usize) -> io::Result<()> {
    for (path, found) in entries(directory)? {
        *left = left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("too many files to check whether root changed one"))?;
        if changed(&found) > since && !is_open(&found) {
            let text = format!("root changed {} after the warm-up", path.display());
            return Err(io::Error::other(text));
        }
        if found.is_dir() {
            is_unchanged(&path, since, left)?;
        }
    }
    Ok(())
}

/// A directory that every user may change by adding or removing entries.
fn is_open(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    found.is_dir() && found.mode() & WORLD_WRITABLE != 0
}
