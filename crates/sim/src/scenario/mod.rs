//! Scenarios: scripts as text, played by the production engine in a calm world, under the checker.
//!
//! The file holds the script, and below each line its result (`> …`). A [`Script`] is read from a
//! file, [`run`] plays it, and [`Played::transcript`] is the file with the actual results. A line
//! that starts with `>` is only compared.
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
