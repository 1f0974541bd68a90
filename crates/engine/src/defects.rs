//! Defects: a panic costs the task in which it happens, and nothing beside it. The process counts the
//! panic, logs what the task was about, and lives on.
//!
//! Not here: rows that panic again and again ([`crate::jobs`] sets them aside).

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bullpen_core::ports::{Fault, Ports};
use bullpen_core::sabotage;
use futures_util::FutureExt as _;

use crate::Stack;

/// The panics that a process caught.
#[derive(Clone, Debug, Default)]
pub struct Defects(Arc<Mutex<Caught>>);

#[derive(Debug, Default)]
struct Caught {
    counts: BTreeMap<&'static str, u64>,
    first: Option<String>,
}

impl Defects {
    fn caught(&self) -> MutexGuard<'_, Caught> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many panics each kind of task had.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.caught().counts.clone()
    }

    /// The first panic, in a line.
    pub fn first(&self) -> Option<String> {
        self.caught().first.clone()
    }

    /// Counts and logs one panic. `about`: what the task was about, empty if its name says all.
    fn note(&self, task: &'static str, about: &impl Display, what: &str) {
        tracing::error!(task, %about, what, "a defect ended a task; the process goes on");
        let mut caught = self.caught();
        *caught.counts.entry(task).or_default() += 1;
        caught.first.get_or_insert_with(|| format!("{task} {about}: {what}"));
    }
}

/// A panic that ended a task.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a defect: {0}")]
pub struct Defect(String);

impl From<Defect> for Fault {
    fn from(defect: Defect) -> Self {
        Self::Unclassified(defect.to_string())
    }
}

impl<P: Ports> Stack<P> {
    /// Runs one task, and catches its panic. What the task shares with others must be whole at every
    /// await, as for a task that is dropped.
    pub fn caught<T>(
        &self,
        task: &'static str,
        about: impl Display,
        work: impl Future<Output = T>,
    ) -> impl Future<Output = Result<T, Defect>> {
        // Boxed at once, because tasks are large futures.
        let work = Box::pin(work);
        async move {
            if sabotage!("panics-are-not-caught") {
                return Ok(work.await);
            }
            let ended = AssertUnwindSafe(work).catch_unwind().await;
            ended.map_err(|panic| {
                let what = text_of(&*panic);
                self.defects.note(task, &about, what);
                Defect(what.to_owned())
            })
        }
    }
}

/// The message of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
