//! What jobs left at the container engine: containers, networks, volumes, images, build caches.
//!
//! Images that the machine had after the warm-up stay, under the names that they had; whatever else is
//! there goes. What the engine says it removed is not believed: it is listed again.
//!
//! Not here: engines that the user runs by itself, whose things are in the home.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where the container engine listens, or what starts it does.
pub(super) const SOCKET: &str = "/var/run/docker.sock";

/// What is listed and removed, all of it.
const ALL_OF: &[(&[&str], &[&str])] = &[
    (&["ps", "--all", "--quiet"], &["rm", "--force", "--volumes"]),
    (&["network", "ls", "--quiet", "--filter", "type=custom"], &["network", "rm"]),
    (&["volume", "ls", "--quiet"], &["volume", "rm", "--force"]),
];
const BUILD_CACHES: &[&str] = &["builder", "prune", "--all", "--force"];
/// An id and a name on each line; an image with two names has two lines.
const IMAGES: &[&str] =
    &["image", "ls", "--all", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"];
const REMOVE_IMAGES: &[&str] = &["image", "rm", "--force"];
/// How the name of an image without one ends.
const NAMELESS: &str = ":<none>";
/// An image goes after those that were built on it, so one try is not always enough.
const TRIES_MAX: u32 = 4;

/// The container engine, if there is one.
pub(super) struct Engine<'a> {
    /// Where its program is looked for.
    pub(super) path: &'a str,
    /// Where it listens.
    pub(super) socket: PathBuf,
}

impl Engine<'_> {
    /// Every image with every name; nothing if there is no engine.
    pub(super) fn images(&self) -> io::Result<Option<BTreeSet<String>>> {
        let listed = self.ask(IMAGES, &[])?;
        let lines = |listed: String| {
            listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        Ok(listed.map(lines))
    }

    /// Removes everything but these images.
    pub(super) fn remove_what_is_new(&self, noted: Option<&BTreeSet<String>>) -> io::Result<()> {
        for (list, removal) in ALL_OF {
            let Some(listed) = self.ask(list, &[])? else { return Ok(()) };
            let ids: Vec<&str> = listed.split_ascii_whitespace().collect();
            if !ids.is_empty() {
                self.ask(removal, &ids)?;
            }
        }
        self.ask(BUILD_CACHES, &[])?;
        self.remove_images(noted)
    }

    fn remove_images(&self, noted: Option<&BTreeSet<String>>) -> io::Result<()> {
        let none = BTreeSet::new();
        for _ in 0..TRIES_MAX {
            let listed = self.images()?.unwrap_or_default();
            let new = new_images(noted.unwrap_or(&none), &listed);
            if new.is_empty() {
                return Ok(());
            }
            if noted.is_none() {
                let text = "nothing says which images the container engine had after the warm-up";
                return Err(io::Error::other(text));
            }
            // One that cannot go yet is no reason to keep the others.
            if let Err(error) = self.ask(REMOVE_IMAGES, &new.into_iter().collect::<Vec<_>>()) {
                tracing::debug!(%error, "not every image could be removed at once");
            }
        }
        Err(io::Error::other("the container engine keeps images that a job brought"))
    }

    /// What the container engine answers; nothing if there is none. Its program alone is no engine: one
    /// that does not run, and that nothing would start, has no containers.
    fn ask(&self, words: &[&str], ids: &[&str]) -> io::Result<Option<String>> {
        let mut docker = Command::new("docker");
        docker.args(words).args(ids).env_clear().env("PATH", self.path).stdin(Stdio::null());
        let output = match docker.output() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        if !output.status.success() && !self.socket.exists() {
            return Ok(None);
        }
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let text = format!("docker {}: {}: {}", words.join(" "), output.status, said.trim());
            return Err(io::Error::other(text));
        }
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// What has to go, by id; by its name alone where an image that may stay got a new one.
fn new_images<'a>(noted: &'a BTreeSet<String>, listed: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
    let id_of = |line: &'a String| line.split(' ').next().unwrap_or_default();
    let known: BTreeSet<&str> = noted.iter().map(id_of).collect();
    let what = |line: &'a String| match line.split_once(' ') {
        // It lost its name; the next job that wants it by that name fetches it.
        Some((id, name)) if known.contains(id) => (!name.ends_with(NAMELESS)).then_some(name),
        _ => Some(id_of(line)),
    };
    listed.difference(noted).filter_map(what).collect()
}
