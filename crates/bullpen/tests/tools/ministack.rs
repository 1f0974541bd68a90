//! One emulator of DynamoDB and SQS for all worlds of a test program, and the variables with which
//! a command finds it.
//!
//! Not here: the emulator's process (`bullpen-faulty`).

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bullpen_faulty::Ministack;

/// The emulator; each access key of twelve digits is an account of its own there.
pub(crate) static EMULATOR: LazyLock<Ministack> =
    LazyLock::new(|| Ministack::start().expect("`cargo xtask tools` installs it"));

static ACCOUNTS: AtomicU64 = AtomicU64::new(100_000_000_000);

/// The environment of a command in another world on AWS's storage.
pub(crate) fn environment() -> Vec<(String, String)> {
    let account = ACCOUNTS.fetch_add(1, Ordering::Relaxed).to_string();
    [
        ("INPUT_ENGINE", "aws".to_owned()),
        ("INPUT_FLEET", "process".to_owned()),
        ("AWS_ENDPOINT_URL", EMULATOR.url()),
        ("AWS_REGION", "eu-west-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", account),
        ("AWS_SECRET_ACCESS_KEY", "not a secret".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}
