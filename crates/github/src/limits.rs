//! Every number of this room, with its unit and its reason.
//!
//! Not here: the engine's deadlines (`bullpen_core::limits`).

use std::time::Duration;

/// One HTTP call, connecting included. GitHub itself gives up on a request after ten seconds.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// One method of the port, however many calls it takes; a listing of 10,000 runners fits in.
pub const METHOD_TIMEOUT: Duration = Duration::from_secs(60);
/// An answer larger than this is not GitHub's: it leaves 80 KB for each entry of a full page.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The largest page GitHub gives.
pub const PER_PAGE: usize = 100;
/// A runner group holds at most 10,000 runners; a listing that goes on has lost its way.
pub const PAGES_MAX: usize = 110;
/// GitHub refuses a JWT from its future, so ours is issued in the past.
pub const JWT_BACKDATE: Duration = Duration::from_secs(60);
/// How long a JWT is good for, from now. GitHub refuses more than ten minutes.
pub const JWT_LIFE: Duration = Duration::from_secs(9 * 60);
/// An installation token is replaced this long before it ends: longer than any method takes, and
/// more than the tolerated skew of the clocks.
pub const TOKEN_EARLY: Duration = Duration::from_secs(5 * 60);
/// A registration token is replaced this long before it ends, because its runner may only be
/// booting.
pub const REGISTRATION_EARLY: Duration = Duration::from_secs(30 * 60);
/// How long to be quiet after a rate limit that does not say: GitHub asks for a minute at least.
pub const QUIET_UNSAID: Duration = Duration::from_secs(60);
/// No rate limit's window is longer.
pub const QUIET_MAX: Duration = Duration::from_secs(60 * 60);
/// How often a JIT configuration is asked for while the name is taken.
pub const JIT_TRIES: u32 = 3;
/// As much of GitHub's own words as goes into a fault.
pub const MESSAGE_CHARS_MAX: usize = 200;

const _: () = assert!(CALL_TIMEOUT.as_secs() < METHOD_TIMEOUT.as_secs());
const _: () = assert!(METHOD_TIMEOUT.as_secs() < TOKEN_EARLY.as_secs());
const _: () = assert!(JWT_BACKDATE.as_secs() + JWT_LIFE.as_secs() <= 10 * 60);
const _: () = assert!(PAGES_MAX * PER_PAGE > 10_000);
