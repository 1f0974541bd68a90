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
/// How long the ids of runner groups are believed: groups hardly ever change.
pub const GROUPS_BELIEVED_FOR: Duration = Duration::from_secs(10 * 60);
/// How soon a group that was not there is looked for again.
pub const GROUP_MISSING_FOR: Duration = Duration::from_secs(60);
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
/// What GitHub allows in a minute: its secondary limit, which it counts for each endpoint and we for
/// all of them together.
pub const POINTS_MAX: u32 = 900;
/// A read's points.
pub const POINTS_READ: u32 = 1;
/// A write's points.
pub const POINTS_WRITE: u32 = 5;
/// How long spent points count: GitHub's minute begins when a call arrives, which may be as late as
/// a call may take.
pub const POINTS_WINDOW: Duration = Duration::from_secs(60 + CALL_TIMEOUT.as_secs());
/// How long a call that a job waits for waits for its turn. Whoever asks has more patience than this.
pub const URGENT_PATIENCE: Duration = Duration::from_secs(15);
/// How long a read waits for its turn.
pub const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Housekeeping comes again by itself.
pub const HOUSEKEEPING_PATIENCE: Duration = Duration::ZERO;
/// Calls at the same time with one credential; GitHub allows a hundred.
pub const CALLS_AT_ONCE_MAX: usize = 90;
/// How far back deliveries are asked for, in pages: GitHub keeps three days of them.
pub const DELIVERY_PAGES_MAX: usize = 50;
/// What GitHub takes as the description of a commit's status.
pub const DESCRIPTION_CHARS_MAX: usize = 140;
/// How often a JIT configuration is asked for while the name is taken.
pub const JIT_TRIES: u32 = 3;
/// As much of GitHub's own words as goes into a fault.
pub const MESSAGE_CHARS_MAX: usize = 200;

const _: () = assert!(CALL_TIMEOUT.as_secs() < METHOD_TIMEOUT.as_secs());
const _: () = assert!(METHOD_TIMEOUT.as_secs() < TOKEN_EARLY.as_secs());
const _: () = assert!(JWT_BACKDATE.as_secs() + JWT_LIFE.as_secs() <= 10 * 60);
const _: () =
    assert!(URGENT_PATIENCE.as_secs() + CALL_TIMEOUT.as_secs() < METHOD_TIMEOUT.as_secs());
const _: () = assert!(PAGES_MAX * PER_PAGE > 10_000);
