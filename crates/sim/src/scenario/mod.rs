//! Scenarios: stories as text, played by the production engine in a calm world, with every invariant
//! watched. The file holds the script, and below each line what happened (`> …`).
//!
//! A [`Script`] is read from a file, [`run`] plays it, and [`Played::transcript`] is the file as it
//! should be. A line that starts with `>` is never read, only compared.
//!
//! Not here: worlds drawn from a seed ([`crate::kernel`]).

mod changes;
mod expect;
mod looks;
mod names;
mod parse;
mod played;
mod pools;
mod processes;
mod runner;
mod service;
mod serving;
mod setting;
mod transcript;
mod troubles;
mod verb;
mod words;

pub use parse::Script;
pub use played::{Broken, Played, Why};
pub use runner::run;
pub use transcript::difference;
pub use words::Misspelt;
