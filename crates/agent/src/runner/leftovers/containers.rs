//! Removes what jobs left in the container engine: containers, networks, volumes, images, build
//! caches.
//!
//! It keeps the images that the machine had after the warm-up, with the names they had then, and
//! removes everything else. It does not trust the engine's answer to a removal but lists again.
//!
//! Not here: engines that the user runs itself; their files are in the user's home.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The socket of the container engine, or of the service manager that starts it.
pub(super) const SOCKET: &str = "/var/run/docker.sock";

/// The commands that list things, and the commands that remove all of them.
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
/// The end of the listed name of an image without a name.
const NAMELESS: &str = ":<none>";
/// The engine removes an image only after the images built on it, so one try may not be enough.
const TRIES_MAX: u32 = 4;

/// The container engine, if there is one.
pub(super) struct Engine<'a> {
    /// The `PATH` to find its program by.
    pub(super) path: &'a str,
    /// Its socket.
    pub(super) socket: PathBuf,
}

impl Engine<'_> {
    /// Every image with every name; `None` if there is no engine.
    pub(super) fn images(&self) -> io::Result<Option<BTreeSet<String>>> {
        let listed = self.ask(IMAGES, &[])?;
        let lines = |listed: String| {
            listed.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
        };
        Ok(listed.map(lines))
    }

    /// Removes everything except these images.
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
                let text = "the container engine's images after the warm-up are unknown";
                return Err(io::Error::other(text));
            }
            // Go on after a failure: the others may be removed all the same.
            if let Err(error) = self.ask(REMOVE_IMAGES, &new.into_iter().collect::<Vec<_>>()) {
                tracing::debug!(%error, "could not remove every image yet");
            }
        }
        Err(io::Error::other("the container engine keeps images that a job brought"))
    }

    /// The container engine's answer; `None` if there is no engine. A program without a socket
    /// counts as no engine: it does not run, nothing would start it, so it has no containers.
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
            let stderr = String::from_utf8_lossy(&output.stderr);
            let text = format!("docker {}: {}: {}", words.join(" "), output.status, stderr.trim());
            return Err(io::Error::other(text));
        }
        Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
    }
}

/// The images to remove, by id; by name only if a kept image got a new name.
fn new_images<'a>(noted: &'a BTreeSet<String>, listed: &'a BTreeSet<String>) -> BTreeSet<&'a str> {
    let id_of = |line: &'a String| line.split(' ').next().unwrap_or_default();
    let known: BTreeSet<&str> = noted.iter().map(id_of).collect();
    let target = |line: &'a String| match line.split_once(' ') {
        // A kept image that lost its name stays; the next job that needs the name fetches it.
        Some((id, name)) if known.contains(id) => (!name.ends_with(NAMELESS)).then_some(name),
        _ => Some(id_of(line)),
    };
    listed.difference(noted).filter_map(target).collect()
}
