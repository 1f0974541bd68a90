//! Planted bugs: [`sabotage!`](macro@crate::sabotage) marks a place where a rule can be switched off, so
//! that a test can prove the simulator notices.
//!
//! Without `--cfg sabotage` the macro is the constant `false` and the branch is compiled away; tidy
//! checks that nothing but the gate's own steps sets that flag. With it, one bug is active per
//! thread, chosen by name.
//!
//! Not here: the list of planted bugs and how soon each is found (`bullpen-sim`).

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

    /// Whether this bug is the active one.
    pub fn is_active(name: &str) -> bool {
        ACTIVE.with(|active| active.get() == Some(name))
    }
}

#[cfg(sabotage)]
pub use active::{is_active, with};

/// Whether this bug is the active one: never, in a build without `--cfg sabotage`.
#[cfg(not(sabotage))]
#[inline]
pub const fn is_active(_name: &str) -> bool {
    false
}
