//! What this room's own tests share: a key made for tests.
//!
//! Not here: the tests that need a server (`tests/loopback`).

/// Made for these tests and used nowhere else.
pub(crate) const APP_KEY: &str = include_str!("../fixtures/test-app-key.pem");
/// The same key in the other form.
pub(crate) const APP_KEY_PKCS8: &str = include_str!("../fixtures/test-app-key.pkcs8.pem");
