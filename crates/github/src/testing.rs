//! The App key of this crate's unit tests.
//!
//! Not here: the tests that need a server (`tests/loopback`).

/// A key for these tests only.
pub(crate) const APP_KEY: &str = include_str!("../fixtures/test-app-key.pem");
/// The same key in the other form.
pub(crate) const APP_KEY_PKCS8: &str = include_str!("../fixtures/test-app-key.pkcs8.pem");
