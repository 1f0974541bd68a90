//! Prints the engine's progress events to stderr, a line for each, while the user waits.
//!
//! Not here: the events (`bullpen_engine::progress`).

use std::sync::atomic::{AtomicUsize, Ordering};

use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::SystemClock;
use bullpen_engine::progress::ProgressEvent;

use crate::render;
use crate::table::count;

/// Prints progress, with the time since its start.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: SystemClock,
    prefix: String,
    wanted: usize,
    ready: AtomicUsize,
}

impl Progress {
    /// Progress towards this many machines.
    pub(super) fn new(wanted: usize) -> Self {
        let prefix = String::new();
        Self { clock: SystemClock::new(), prefix, wanted, ready: AtomicUsize::new(0) }
    }

    /// Progress of one of several requests that share an output and a clock.
    pub(crate) fn of(request: &str, wanted: usize, clock: SystemClock) -> Self {
        Self { clock, prefix: format!("{request}  "), ..Self::new(wanted) }
    }

    /// Prints an event.
    pub(crate) fn show(&self, event: &ProgressEvent) {
        self.say(&self.line(event));
    }

    /// Prints a line of the command's own.
    pub(crate) fn say(&self, line: &str) {
        let elapsed = self.clock.monotonic().as_secs_f64();
        render::talk(&format!("{elapsed:7.2} s  {}{line}", self.prefix));
    }

    fn line(&self, event: &ProgressEvent) -> String {
        let wanted = self.wanted;
        match event {
            ProgressEvent::Begun { .. } => String::from("the request is stored"),
            ProgressEvent::Resumed { machines } => {
                format!("resuming with {}", count(*machines, "machine"))
            }
            ProgressEvent::Selecting { runners } => {
                format!("looking for {}", count(*runners, "idle machine"))
            }
            ProgressEvent::Launching { machines } => {
                format!("launching {}", count(*machines, "machine"))
            }
            ProgressEvent::Ready { instance, .. } => {
                let ready = self.ready.fetch_add(1, Ordering::Relaxed) + 1;
                format!("{instance} listens ({ready} of {wanted})")
            }
            ProgressEvent::Failed { instance, why } => format!("{instance} is not used: {why}"),
            ProgressEvent::WaitingForRoom { why } => format!("waiting for capacity: {why}"),
            ProgressEvent::Returned { instance } => format!("{instance} is idle again"),
            ProgressEvent::Ended { instance } => format!("{instance} ends"),
            ProgressEvent::Waiting { instance } => {
                format!("{instance}: waiting for its job or its agent")
            }
        }
    }
}
