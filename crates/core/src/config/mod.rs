//! Configuration: text once, a validated value ever after.
//!
//! `runs-on.yml` ([`runs_on`]) says which machines are wanted: runners, images, pools. `bullpen.toml`
//! ([`stack`]) says where they live and what they may cost. Both are read into one kind of tree with
//! places ([`Finding`]s point at them), every mapping is held against the keys it may have, and
//! reading goes on after a finding. There is a value only if every error is inside a pool; such pools
//! are *broken* and left out of it.
//!
//! Not here: opening files or looking at the environment (`bullpen`), which target a schedule gives
//! (`schedule`), or what labels ask for.

mod churn;
mod code;
pub mod extension;
mod finding;
pub mod forms;
pub mod image;
pub mod label_policy;
mod node;
pub mod pool;
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

/// The size of `runs-on.yml`. GitHub serves files of up to this size as they are.
pub const RUNS_ON_BYTES_MAX: usize = 1024 * 1024;
/// The size of `bullpen.toml`. Ours with every key and its documentation is a tenth of it.
pub const STACK_BYTES_MAX: usize = 64 * 1024;

/// The text of a file, if it is one and not too long.
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
