//! Removes what jobs left before the next owner's jobs start: timetables, the user's files, new
//! files in its home, new things in the container engine (`containers`). If the user may become
//! root, it also checks what root changed (`places`). *New* is a file that changed after the
//! [`stamp`] of the warm-up's end; only root can set change times. It removes a file of the image
//! that a job changed and does not restore it. If it cannot remove something, it returns an error,
//! and the machine gets no further owner.
//!
//! Not here: ending the user's processes, which goes first (`process`).

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bullpen_core::isolation::ROOTS_FRIENDS;
use serde::{Deserialize, Serialize};

use super::user::User;
use containers::Engine;

mod containers;
mod places;

/// Directories that every user may write to.
const SHARED: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];
/// Directories with one file per user, which makes the system run the user's programs later.
const PER_USER: &[&str] =
    &["/var/spool/cron/crontabs", "/var/spool/cron", "/var/lib/systemd/linger"];
/// Directories of `at` jobs, which are files of their users.
const LATER: &[&str] = &["/var/spool/cron/atjobs", "/var/spool/at"];
/// The extension of the file beside the stamp with the facts of [`Noted`].
const NOTED: &str = "noted";

/// Facts about the machine at the end of the warm-up that the files' times do not tell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "v")]
enum Noted {
    #[serde(rename = "1")]
    V1 {
        /// Whether jobs could have become root.
        becomes_root: bool,
        /// The container engine's images; nothing if it did not answer.
        images: Option<BTreeSet<String>>,
    },
}

/// Removes what one user left.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers {
    user: User,
    /// The root of the machine's files; `/` except in tests.
    root: PathBuf,
    /// The `PATH` to find programs by.
    path: String,
    stamp: PathBuf,
}

impl Leftovers {
    /// For this machine, with the stamp in this file.
    pub(crate) fn new(user: User, path: &str, stamp: PathBuf) -> Self {
        Self { user, root: PathBuf::from("/"), path: path.to_owned(), stamp }
    }

    /// Records the end of the warm-up: cleaning keeps what exists now. `sudo`: whether the user
    /// may use it.
    pub(crate) fn note(&self, sudo: bool) -> io::Result<()> {
        let images = self.engine().images().unwrap_or_else(|error| {
            tracing::warn!(%error, "could not list the container engine's images");
            None
        });
        let becomes_root = sudo || self.is_in_a_root_group()?;
        let noted = serde_json::to_string(&Noted::V1 { becomes_root, images })?;
        fs::write(self.stamp.with_extension(NOTED), noted)?;
        stamp(&self.stamp)
    }

    fn is_in_a_root_group(&self) -> io::Result<bool> {
        let is_such = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, ..] = fields[..] else { return false };
            let joined = |id: u32| self.user.gid == id || self.user.groups.contains(&id);
            ROOTS_FRIENDS.contains(&name) && id.parse().is_ok_and(joined)
        };
        match fs::read_to_string(self.at("/etc/group")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            read => Ok(read?.lines().any(is_such)),
        }
    }

    /// Removes what would start processes again; call it before ending the processes.
    pub(crate) fn stop_what_comes_again(&self) -> io::Result<()> {
        for directory in PER_USER {
            absent_is_fine(fs::remove_file(self.at(directory).join(&self.user.name)))?;
        }
        LATER.iter().try_for_each(|directory| self.remove_owned(&self.at(directory)))
    }

    /// Removes the rest, also from the runner's directory; call it when no process of the user
    /// runs any more.
    pub(crate) fn remove(&self, runner: &Path) -> io::Result<()> {
        let (Noted::V1 { becomes_root, images }, since) = (self.noted()?, self.since()?);
        self.engine().remove_what_is_new(images.as_ref())?;
        self.remove_owned(runner)?;
        for directory in SHARED.iter().chain(places::TOOLS) {
            self.remove_owned(&self.at(directory))?;
        }
        self.remove_owned(&self.at("/run/user").join(self.user.uid.to_string()))?;
        remove_changed(&self.at(&self.user.home.to_string_lossy()), since)?;
        if !becomes_root {
            return Ok(());
        }
        SHARED.iter().try_for_each(|directory| remove_changed(&self.at(directory), since))?;
        places::are_unchanged(&self.root, since)
    }

    fn engine(&self) -> Engine<'_> {
        Engine { path: &self.path, socket: self.at(containers::SOCKET) }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Removes the user's files below this directory, at any depth.
    fn remove_owned(&self, directory: &Path) -> io::Result<()> {
        for (path, found) in entries(directory)? {
            if found.uid() == self.user.uid {
                remove(&path, &found)?;
            } else if found.is_dir() {
                self.remove_owned(&path)?;
            }
        }
        Ok(())
    }

    fn noted(&self) -> io::Result<Noted> {
        let unknown = |error: io::Error| {
            io::Error::other(format!("the machine's state after the warm-up is unknown: {error}"))
        };
        let text = fs::read_to_string(self.stamp.with_extension(NOTED)).map_err(unknown)?;
        serde_json::from_str(&text).map_err(|error| unknown(error.into()))
    }

    /// When the warm-up ended, by the file system's clock.
    fn since(&self) -> io::Result<(i64, i64)> {
        let unknown =
            |error| io::Error::other(format!("the time of the warm-up's end is unknown: {error}"));
        let since = changed(&fs::metadata(&self.stamp).map_err(unknown)?);
        let probe = self.stamp.with_extension("now");
        fs::write(&probe, "")?;
        if changed(&fs::metadata(&probe)?) < since {
            return Err(io::Error::other("the clock went back, so new files cannot be recognised"));
        }
        Ok(since)
    }
}

/// Sets the time of the warm-up's end: every later change is a job's.
fn stamp(file: &Path) -> io::Result<()> {
    let next = file.with_extension("next");
    absent_is_fine(fs::remove_file(&next))?;
    fs::write(&next, "")?;
    // Renaming sets the file's change time, after every write of the warm-up.
    fs::rename(next, file)
}

/// Removes files that changed later, at any depth, and directories that changed later and are
/// empty.
fn remove_changed(directory: &Path, since: (i64, i64)) -> io::Result<()> {
    for (path, found) in entries(directory)? {
        let is_new = changed(&found) > since;
        if found.is_dir() {
            remove_changed(&path, since)?;
            if is_new && entries(&path)?.is_empty() {
                fs::remove_dir(&path)?;
            }
        } else if is_new {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

/// The entries of a directory, none if it does not exist; does not follow links.
fn entries(directory: &Path) -> io::Result<Vec<(PathBuf, Metadata)>> {
    let read = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut found = Vec::new();
    for entry in read {
        let entry = entry?;
        match entry.metadata() {
            Ok(metadata) => found.push((entry.path(), metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

fn remove(path: &Path, found: &Metadata) -> io::Result<()> {
    absent_is_fine(if found.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) })
}

fn changed(file: &Metadata) -> (i64, i64) {
    (file.ctime(), file.ctime_nsec())
}

/// Turns "not found" into success, for removals.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
