//! Planted bugs: [`sabotage!`](macro@crate::sabotage) marks a place where a test can switch a rule
//! off, to prove that the simulator notices.
//!
//! Without `--cfg sabotage` the macro is the constant `false` and the branch is compiled away; tidy
//! checks that only the gate's own steps set that flag. With it, each thread has at most one active
//! bug, chosen by name.
//!
//! Not here: the list of planted bugs and how soon the simulator finds each (`bullpen-sim`).

/// True if the planted bug of this name is active. Always false without `--cfg sabotage`.
#[macro_export]
macro_rules! sabotage {
    ($name:literal) => {
        $crate::sabotage::is_active($name)
    };
}

#[cfg(sabotage)]
mod active {
    use std::cell::Cell;

    thread_local! {
        static ACTIVE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Runs `body` with one planted bug active on this thread.
    pub fn with<T>(name: &'static str, body: impl FnOnce() -> T) -> T {
        ACTIVE.with(|active| active.set(Some(name)));
        let result = body();
        ACTIVE.with(|active| active.set(None));
        result
    }

    /// Whether this bug is active on this thread.
    pub fn is_active(name: &str) -> bool {
        ACTIVE.with(|active| active.get() == Some(name))
    }
}

#[cfg(sabotage)]
pub use active::{is_active, with};

/// Whether this bug is active: never, in a build without `--cfg sabotage`.
#[cfg(not(sabotage))]
#[inline]
pub const fn is_active(_name: &str) -> bool {
    false
}
