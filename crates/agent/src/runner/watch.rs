//! Watches one listener: its growing output, and whether it lives.
//!
//! Not here: ending it (`process`), or what a line means (`markers`).

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek, SeekFrom};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

use bullpen_core::mailbox::Assignment;

use super::Observed;
use super::hook;
use super::markers::{is_update, read};
use super::poll_backoff::PollBackoff;
use super::process::LISTENER;
use super::state::Listener;
use super::tree::Identity;

/// The most bytes of output per read.
const BYTES_PER_READ: u64 = 256 * 1024;
/// The most bytes to keep of one line. No marker is that long.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// One listener under watch.
#[derive(Debug)]
pub(crate) struct Watch {
    listener: Listener,
    process: Identity,
    /// Only the agent that started the listener can ask for its exit code.
    child: Option<Child>,
    log: PathBuf,
    root: PathBuf,
    read_to: u64,
    line: Vec<u8>,
    listening: bool,
    job: Option<String>,
    seen: VecDeque<Observed>,
    over: bool,
    code: Option<i32>,
    looks: PollBackoff,
}

impl Watch {
    pub(crate) fn new(
        listener: Listener,
        process: Identity,
        child: Option<Child>,
        log: PathBuf,
        root: PathBuf,
    ) -> Self {
        Self {
            listener,
            process,
            child,
            log,
            root,
            read_to: 0,
            line: Vec::new(),
            listening: false,
            job: None,
            seen: VecDeque::new(),
            over: false,
            code: None,
            looks: PollBackoff::new(),
        }
    }

    pub(crate) fn process(&self) -> Identity {
        self.process
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether the listener has ended so that the program can update itself.
    pub(crate) fn ended_for_an_update(&self) -> bool {
        self.code.is_some_and(is_update)
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listening
    }

    /// The wait until the next look at a listener that does not listen yet; its owner waits for it.
    pub(crate) fn look_again_after(&mut self) -> Duration {
        self.looks.wait()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Sets the listener's assignment, and returns the state to store.
    pub(crate) fn serve(&mut self, to: &Assignment) -> &Listener {
        self.listener.assignment = Assignment { credential: None, ..to.clone() };
        &self.listener
    }

    /// Reads a found listener's whole output, and drops every event before its last change of
    /// state.
    pub(crate) fn catch_up(&mut self) -> (bool, Option<String>) {
        self.look();
        // Drop problems that the listener got over, too.
        let is_news =
            |seen: &Observed| matches!(seen, Observed::Ended { .. } | Observed::Trouble(_));
        let old = self.seen.iter().rposition(|seen| !is_news(seen)).map_or(0, |last| last + 1);
        self.seen.drain(..old);
        (self.listening, self.job.clone())
    }

    /// The next thing that the listener did.
    pub(crate) fn next(&mut self) -> Option<Observed> {
        if self.seen.is_empty() {
            self.look();
        }
        self.seen.pop_front()
    }

    /// Reads new output. Returns whether the listener has ended.
    pub(crate) fn look(&mut self) -> bool {
        if self.over {
            return true;
        }
        // Check for the end before reading: the file is then complete.
        let ended = self.ended();
        let length = fs::metadata(&self.log).map_or(0, |log| log.len());
        while self.read_to < length && self.take_output().unwrap_or(false) {}
        self.read_hook_report();
        if let Some(ended) = ended {
            self.over = true;
            self.job = None;
            self.seen.push_back(ended);
        }
        self.over
    }

    /// Reads the report of a started job's hook, and stores it before the agent acts on it: the
    /// next agent must know of a stranger too.
    fn read_hook_report(&mut self) {
        let Some(ran) = hook::read_report(&self.root) else { return };
        self.listener.ran = Some(ran.clone());
        if let Err(error) = self.listener.save(&self.log.with_file_name(LISTENER)) {
            tracing::warn!(%error, "could not store a job's run");
            return;
        }
        hook::remove_report(&self.root);
        self.seen.push_back(Observed::JobOf(ran));
    }

    /// The listener's end, if it has ended.
    fn ended(&mut self) -> Option<Observed> {
        let code = match &mut self.child {
            Some(child) => child.try_wait().ok()??.code(),
            None if self.process.is_alive() => return None,
            None => None,
        };
        self.code = code;
        Some(Observed::Ended { code })
    }

    /// Reads some output; returns whether there may be more.
    fn take_output(&mut self) -> io::Result<bool> {
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut bytes = Vec::new();
        let count = file.take(BYTES_PER_READ).read_to_end(&mut bytes)?;
        self.read_to += u64::try_from(count).unwrap_or(0);
        for byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                self.take_line(&String::from_utf8_lossy(&line));
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            }
        }
        Ok(count > 0)
    }

    fn take_line(&mut self, line: &str) {
        let Some(mut seen) = read(line) else { return };
        match &mut seen {
            Observed::Listening { id } => {
                self.listening = true;
                *id = self.runner_id();
            }
            Observed::JobStarted { name } => {
                self.listening = true;
                self.job = Some(name.clone());
            }
            Observed::JobFinished { .. } => self.job = None,
            Observed::JobOf(_) | Observed::Trouble(_) | Observed::Ended { .. } => {}
        }
        self.seen.push_back(seen);
    }

    /// The runner's id at GitHub, from the registration's file.
    fn runner_id(&self) -> Option<String> {
        let text = fs::read_to_string(self.root.join(".runner")).ok()?;
        // The program writes a byte order mark.
        let json = text.trim_start_matches('\u{feff}');
        let settings: serde_json::Value = serde_json::from_str(json).ok()?;
        let id = settings.get("AgentId").or_else(|| settings.get("agentId"))?;
        // A number, or in a JIT configuration the number as text.
        id.as_i64().map(|id| id.to_string()).or_else(|| id.as_str().map(str::to_owned))
    }
}
