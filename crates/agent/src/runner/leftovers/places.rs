//! Where a job that became root could have left something that outlives it, and whether it did.
//!
//! What changed there after the warm-up cannot be put back, so it is not removed: the machine is not used
//! again. This is no proof. Root can set times, change what is in none of these places, or change the
//! agent; it finds what installs and careless jobs leave, and keeps them from the next owner.
//!
//! Not here: what belongs to the jobs' user.

use std::fs::Metadata;
use std::io;
use std::path::Path;

use super::{changed, entries};

/// Programs beside the system's own; images for GitHub's runners let anybody write to some of them.
pub(super) const TOOLS: &[&str] = &["/opt", "/usr/local"];
/// Settings, programs that are found by name, what is started by itself, and what notes an installation.
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
/// Who may write to a directory that anybody may write to.
const BY_ANYBODY: u32 = 0o002;
/// As many entries as are looked at. A large image has some hundred thousand of them; what cannot be
/// looked at while an owner is waiting is not shown to be clean.
const ENTRIES_MAX: usize = 1_000_000;

/// An error if anything there changed since, or there is too much of it.
pub(super) fn are_unchanged(root: &Path, since: (i64, i64)) -> io::Result<()> {
    let mut left = ENTRIES_MAX;
    for place in SYSTEM.iter().chain(TOOLS) {
        is_unchanged(&root.join(place.trim_start_matches('/')), since, &mut left)?;
    }
    Ok(())
}

fn is_unchanged(directory: &Path, since: (i64, i64), left: &mut usize) -> io::Result<()> {
    for (path, found) in entries(directory)? {
        *left = left.checked_sub(1).ok_or_else(|| {
            io::Error::other("there is too much to see whether root changed anything")
        })?;
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

/// A directory that changes when anybody makes or removes something in it.
fn is_open(found: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    found.is_dir() && found.mode() & BY_ANYBODY != 0
}
