//! Every number of this crate, with its unit and its reason.
//!
//! Not here: the engine's deadlines (`bullpen_core::limits`).

use std::time::Duration;

/// The longest HTTP call, with connecting. GitHub itself gives up on a request after ten seconds.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// The longest method of a port, with all its calls; enough for a listing of 10,000 runners.
pub const METHOD_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer to read; it leaves 80 KB for each entry of a full page.
pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The largest page that GitHub serves.
pub const PER_PAGE: usize = 100;
/// A runner group holds at most 10,000 runners; a longer listing is an error.
pub const PAGES_MAX: usize = 110;
/// Most pages to keep for conditional calls: two for each of a hundred active repositories, and as
/// many runs. A page of jobs has some 50 KB.
pub const SEEN_PAGES_MAX: usize = 400;
/// How long to reuse the ids of runner groups: groups hardly ever change.
pub const GROUPS_BELIEVED_FOR: Duration = Duration::from_secs(10 * 60);
/// How soon to look again for a group that did not exist.
pub const GROUP_MISSING_FOR: Duration = Duration::from_secs(60);
/// GitHub refuses a JWT issued in its future, so ours is backdated.
pub const JWT_BACKDATE: Duration = Duration::from_secs(60);
/// How long a JWT is valid, from now. GitHub refuses more than ten minutes.
pub const JWT_LIFE: Duration = Duration::from_secs(9 * 60);
/// How long before its end to replace an installation token: longer than any method takes, and more
/// than the tolerated skew of the clocks.
pub const TOKEN_EARLY: Duration = Duration::from_secs(5 * 60);
/// How long before its end to replace a registration token: the runner that uses it may still have
/// to boot.
pub const REGISTRATION_EARLY: Duration = Duration::from_secs(30 * 60);
/// How long to pause after a rate limit without a time: GitHub asks for a minute at least.
pub const PAUSE_DEFAULT: Duration = Duration::from_secs(60);
/// The longest pause; no rate limit's window is longer.
pub const PAUSE_MAX: Duration = Duration::from_secs(60 * 60);
/// The points that GitHub's secondary limit allows in a minute. GitHub counts them for each
/// endpoint, the budget for all endpoints together.
pub const POINTS_MAX: u32 = 900;
/// A read's points.
pub const POINTS_READ: u32 = 1;
/// A write's points.
pub const POINTS_WRITE: u32 = 5;
/// How long spent points count, from the answer on: GitHub counts a call when it arrives.
pub const POINTS_MINUTE: Duration = Duration::from_secs(60);
/// How long the points of a call without an answer count: it arrived at most [`CALL_TIMEOUT`] after
/// we sent it.
pub const POINTS_WINDOW: Duration = POINTS_MINUTE.saturating_add(CALL_TIMEOUT);
/// How long an urgent call waits for the budget; less than the engine's `forge_patience`.
pub const URGENT_PATIENCE: Duration = Duration::from_secs(15);
/// How long a read waits for the budget.
pub const READ_PATIENCE: Duration = Duration::from_secs(5);
/// How long housekeeping waits for the budget: it runs again later anyway.
pub const HOUSEKEEPING_PATIENCE: Duration = Duration::ZERO;
/// Most calls at the same time with one credential; GitHub allows a hundred.
pub const CALLS_AT_ONCE_MAX: usize = 90;
/// Most pages of deliveries to read: GitHub keeps three days of them.
pub const DELIVERY_PAGES_MAX: usize = 50;
/// The longest description of a commit status that GitHub accepts.
pub const DESCRIPTION_CHARS_MAX: usize = 140;
/// How often to request a JIT configuration while the name is taken.
pub const JIT_TRIES: u32 = 3;
/// How much of GitHub's message a fault keeps.
pub const MESSAGE_CHARS_MAX: usize = 200;

const _: () = assert!(CALL_TIMEOUT.as_secs() < METHOD_TIMEOUT.as_secs());
const _: () = assert!(METHOD_TIMEOUT.as_secs() < TOKEN_EARLY.as_secs());
const _: () = assert!(JWT_BACKDATE.as_secs() + JWT_LIFE.as_secs() <= 10 * 60);
const _: () =
    assert!(URGENT_PATIENCE.as_secs() + CALL_TIMEOUT.as_secs() < METHOD_TIMEOUT.as_secs());
const _: () = assert!(PAGES_MAX * PER_PAGE > 10_000);

#[cfg(test)]
mod tests {
    use bullpen_sim::wire::{GITHUB_CALL, GITHUB_METHOD};

    use super::{CALL_TIMEOUT, METHOD_TIMEOUT};

    #[test]
    fn the_model_of_github_waits_as_long_as_this_client() {
        assert_eq!((GITHUB_CALL, GITHUB_METHOD), (CALL_TIMEOUT, METHOD_TIMEOUT));
    }
}
