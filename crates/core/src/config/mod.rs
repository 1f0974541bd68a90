//! Configuration files, read once into validated values.
//!
//! `runs-on.yml` ([`runs_on`]) defines runners, images and pools. `bullpen.toml` ([`stack`])
//! defines where machines are launched and the limits. Both become a tree with positions, reading
//! continues after an error, and each [`Finding`] has a position. Pools with errors are *broken*
//! and left out of the value.
//!
//! Not here: opening files or reading the environment (`bullpen`), evaluating a schedule
//! (`schedule`), or labels (`labels`).

mod churn;
mod code;
pub mod extension;
mod finding;
pub mod forms;
pub mod image;
pub mod label_policy;
mod node;
pub mod pool;
pub mod pool_keys;
mod read;
pub mod runner;
pub mod runs_on;
mod script;
pub mod stack;
pub mod timetable;
mod toml;
mod yaml;

pub use finding::{ConfigRead, Finding, TextPosition};
pub use read::{ConfigKey, KeySupport, MappingShape};
pub use runs_on::Config;
pub use stack::Stack;

use finding::Findings;

/// The code of the finding about a file without a word. `lint` warns of it, and the service keeps its
/// last good configuration.
pub const EMPTY_FILE: &str = "empty-file";
/// The largest `runs-on.yml`: GitHub's API serves files up to this size unabridged.
pub const RUNS_ON_BYTES_MAX: usize = 1024 * 1024;
/// The largest `bullpen.toml`: ten times the default file, which documents every key.
pub const STACK_BYTES_MAX: usize = 64 * 1024;

/// The file as text, if it is UTF-8 and not too long.
fn text_of<'b>(bytes: &'b [u8], bytes_max: usize, findings: &mut Findings) -> Option<&'b str> {
    if bytes.len() > bytes_max {
        let message = format!("the file is longer than {bytes_max} bytes");
        findings.error(TextPosition::START, "too-large", message);
        return None;
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) => {
            let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let at = TextPosition::of_byte(&before, before.len());
            let message = "the file is not UTF-8 from here on";
            findings.error(at, "not-utf8", message).instead("save it as UTF-8");
            None
        }
    }
}
