//! What jobs left on a machine, and how it is removed before the next owner's: timetables, files of the
//! user, whatever is new in its home, what is new at the container engine (`containers`), and what root
//! changed, if the user may become root (`places`). New is what the [`stamp`] of the warm-up's end does not
//! cover; a user without root cannot set change times. A file of the image's that a job changed is removed,
//! not restored. Whatever cannot be removed is an error, and a machine that cannot be cleaned is not used
//! again.
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

/// Where anybody may write.
const SHARED: &[&str] = &["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"];
/// Directories with a file per user of what is run for it later, or without it.
const PER_USER: &[&str] =
    &["/var/spool/cron/crontabs", "/var/spool/cron", "/var/lib/systemd/linger"];
/// Jobs for later, which are files of their users.
const LATER: &[&str] = &["/var/spool/cron/atjobs", "/var/spool/at"];
/// The file beside the stamp that tells what was there after the warm-up.
const NOTED: &str = "noted";

/// What was there after the warm-up, besides what files tell by themselves.
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

/// What one user left.
#[derive(Clone, Debug)]
pub(crate) struct Leftovers {
    user: User,
    /// The machine's files; `/`, but in tests.
    root: PathBuf,
    /// Where programs are looked for.
    path: String,
    stamp: PathBuf,
}

impl Leftovers {
    /// On this machine, with the stamp in this file.
    pub(crate) fn new(user: User, path: &str, stamp: PathBuf) -> Self {
        Self { user, root: PathBuf::from("/"), path: path.to_owned(), stamp }
    }

    /// Notes that the warm-up is over: what is there now may stay. `sudo`: whether the user was given it.
    pub(crate) fn note(&self, sudo: bool) -> io::Result<()> {
        let images = self.engine().images().unwrap_or_else(|error| {
            tracing::warn!(%error, "the container engine does not say which images it has");
            None
        });
        let becomes_root = sudo || self.is_roots_friend()?;
        let noted = serde_json::to_string(&Noted::V1 { becomes_root, images })?;
        fs::write(self.stamp.with_extension(NOTED), noted)?;
        stamp(&self.stamp)
    }

    fn is_roots_friend(&self) -> io::Result<bool> {
        let is = |line: &str| {
            let fields: Vec<&str> = line.split(':').collect();
            let [name, _, id, ..] = fields[..] else { return false };
            let joined = |id: u32| self.user.gid == id || self.user.groups.contains(&id);
            ROOTS_FRIENDS.contains(&name) && id.parse().is_ok_and(joined)
        };
        match fs::read_to_string(self.at("/etc/group")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            read => Ok(read?.lines().any(is)),
        }
    }

    /// Removes what would start again by itself; before the processes are ended.
    pub(crate) fn stop_what_comes_again(&self) -> io::Result<()> {
        for directory in PER_USER {
            absent_is_fine(fs::remove_file(self.at(directory).join(&self.user.name)))?;
        }
        LATER.iter().try_for_each(|directory| self.remove_owned(&self.at(directory)))
    }

    /// Removes the rest, also from the runner's directory; when no process of the user's runs any
    /// more.
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

    /// Everything that belongs to the user below this directory, at any depth.
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
        let told = |error: io::Error| {
            io::Error::other(format!("nothing says what the warm-up left on the machine: {error}"))
        };
        let text = fs::read_to_string(self.stamp.with_extension(NOTED)).map_err(told)?;
        serde_json::from_str(&text).map_err(|error| told(error.into()))
    }

    /// When the warm-up ended, by the clock that stamps files.
    fn since(&self) -> io::Result<(i64, i64)> {
        let told = |error| {
            io::Error::other(format!("nothing says what the warm-up left in the home: {error}"))
        };
        let since = changed(&fs::metadata(&self.stamp).map_err(told)?);
        let probe = self.stamp.with_extension("now");
        fs::write(&probe, "")?;
        if changed(&fs::metadata(&probe)?) < since {
            return Err(io::Error::other("the clock went back, and what is new cannot be told"));
        }
        Ok(since)
    }
}

/// From now on what is new is a job's.
fn stamp(file: &Path) -> io::Result<()> {
    let next = file.with_extension("next");
    absent_is_fine(fs::remove_file(&next))?;
    fs::write(&next, "")?;
    // Renaming is a change of the file, and the last one before the first job.
    fs::rename(next, file)
}

/// Removes what is newer, at any depth, and directories that are newer and empty then.
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

/// What is in a directory, if there is one; links are not followed.
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

/// What is gone already need not be removed.
pub(crate) fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests;
