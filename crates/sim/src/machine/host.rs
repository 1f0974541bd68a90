//! The host that a simulated machine offers its agent: watchdog, warm-up, notes.
//!
//! All of it belongs to the boot, and outlives an agent process that dies and restarts.
//!
//! Not here: the runner program ([`super::runner`]).

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bullpen_agent::host::{Host, Notebook, Scripts, Watchdog};
use bullpen_agent::notes::Notes;
use bullpen_agent::warm_up::{Step, StepFailed};
use bullpen_core::ports::Clock as _;
use bullpen_core::time::Timestamp;
use tokio::sync::watch;

use super::runner::Program;
use crate::clock::{SimClock, pass};

/// The host of one boot's agents.
#[derive(Clone, Debug)]
pub(super) struct SimHost {
    pub(super) program: Arc<Program>,
    pub(super) watchdog: Arc<Timer>,
    pub(super) script: Arc<BootScript>,
    pub(super) notebook: Arc<NotesFile>,
}

impl Host for SimHost {
    type Runner = Program;
    type Watchdog = Timer;
    type Scripts = BootScript;
    type Notebook = NotesFile;

    fn runner(&self) -> &Program {
        &self.program
    }

    fn watchdog(&self) -> &Timer {
        &self.watchdog
    }

    fn scripts(&self) -> &BootScript {
        &self.script
    }

    fn notebook(&self) -> &NotesFile {
        &self.notebook
    }
}

/// Switches the machine off, by the machine's own clock.
#[derive(Debug)]
pub(super) struct Timer {
    clock: SimClock,
    at: watch::Sender<Option<Timestamp>>,
}

impl Timer {
    pub(super) fn new(clock: SimClock) -> Self {
        Self { clock, at: watch::Sender::new(None) }
    }

    /// Returns when the machine must switch off.
    pub(super) async fn fires(&self) {
        let mut moved = self.at.subscribe();
        loop {
            let at = *moved.borrow_and_update();
            let due = async {
                match at {
                    Some(at) => pass(at.since(self.clock.now())).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = moved.changed() => {}
                () = due => return,
            }
        }
    }
}

impl Watchdog for Timer {
    async fn shorten(&self, to: Timestamp) -> io::Result<()> {
        self.at.send_modify(|at| *at = Some(at.map_or(to, |at| at.min(to))));
        Ok(())
    }
}

/// One boot's warm-up.
#[derive(Clone, Copy, Debug)]
pub(super) enum BootScript {
    /// It takes this long.
    Takes(Duration),
    /// It fails after this long.
    Fails(Duration),
    /// It never ends.
    Hangs,
}

impl Scripts for BootScript {
    async fn run(&self, _: &Step) -> Result<(), StepFailed> {
        match *self {
            Self::Takes(time) => {
                pass(time).await;
                Ok(())
            }
            Self::Fails(time) => {
                pass(time).await;
                Err(StepFailed { how: String::from("exit status: 1"), tail: String::new() })
            }
            Self::Hangs => pending().await,
        }
    }

    async fn end(&self, _: &Step) -> String {
        String::new()
    }
}

/// The agent's notes.
#[derive(Debug, Default)]
pub(super) struct NotesFile(Mutex<Option<Notes>>);

impl Notebook for NotesFile {
    fn load(&self) -> Option<Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn save(&self, notes: &Notes) -> io::Result<()> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(notes.clone());
        Ok(())
    }
}
