//! Scenarios: stories as text, played by the production engine in a calm world, with every invariant
//! watched. The file holds the script, and below each line what happened (`> …`).
//!
//! A [`Script`] is read from a file, [`run`] plays it, and [`Played::transcript`] is the file as it
//! should be. A line that starts with `>` is never read, only compared.
//!
//! Not here: worlds drawn from a seed ([`crate::kernel`]).

mod expect;
mod looks;
mod names;
mod parse;
mod processes;
mod runner;
mod setting;
mod transcript;
mod verb;
mod words;

pub use parse::Script;
pub use runner::{Broken, Played, Why, run};
pub use transcript::difference;
pub use words::Misspelt;
