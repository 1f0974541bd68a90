//! Showing what the engine tells while somebody waits: one line each, to stderr.
//!
//! Not here: what is told (`bullpen_engine::progress`).

use std::sync::atomic::{AtomicUsize, Ordering};

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_engine::progress::ProgressEvent;

use crate::render;

/// Shows progress, with the time since it began.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: SystemClock,
    whose: String,
    wanted: usize,
    ready: AtomicUsize,
}

impl Progress {
    /// Towards this many machines.
    pub(super) fn new(wanted: usize) -> Self {
        Self { clock: SystemClock::new(), whose: String::new(), wanted, ready: AtomicUsize::new(0) }
    }

    /// The same for one of several that are shown together, by one clock.
    pub(crate) fn of(whose: &str, wanted: usize, clock: SystemClock) -> Self {
        Self { clock, whose: format!("{whose}  "), ..Self::new(wanted) }
    }

    /// Shows one thing.
    pub(crate) fn show(&self, told: &ProgressEvent) {
        self.say(&self.line(told));
    }

    /// Shows something that the engine does not know of.
    pub(crate) fn say(&self, line: &str) {
        let elapsed = self.clock.monotonic().as_secs_f64();
        render::talk(&format!("{elapsed:7.2} s  {}{line}", self.whose));
    }

    fn line(&self, told: &ProgressEvent) -> String {
        let wanted = self.wanted;
        match told {
            ProgressEvent::Begun { .. } => String::from("the request is stored"),
            ProgressEvent::Resumed { machines } => format!("resuming with {machines} machines"),
            ProgressEvent::Selecting { runners } => {
                format!("looking for {runners} among the idle machines")
            }
            ProgressEvent::Launching { machines } => format!("launching {machines}"),
            ProgressEvent::Ready { instance, .. } => {
                let ready = self.ready.fetch_add(1, Ordering::Relaxed) + 1;
                format!("{instance} listens ({ready} of {wanted})")
            }
            ProgressEvent::Failed { instance, why } => format!("{instance} is not used: {why}"),
            ProgressEvent::WaitingForRoom { why } => format!("waiting for room: {why}"),
            ProgressEvent::Returned { instance } => format!("{instance} is idle again"),
            ProgressEvent::Ended { instance } => format!("{instance} ends"),
            ProgressEvent::Waiting { instance } => {
                format!("{instance}: waiting for its job, or its agent")
            }
        }
    }
}
