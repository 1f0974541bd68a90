//! Verifies GitHub's signature: HMAC-SHA-256 over the raw body, compared in constant time.
//!
//! Not here: parsing the body (`event`).

use std::fmt;

use bullpen_core::mailbox::Secret;
use ring::hmac::{self, HMAC_SHA256, Key};

const PREFIX: &str = "sha256=";
/// The length of a SHA-256 in bytes.
const DIGEST_BYTES: usize = 32;

/// The valid webhook secrets: one, or two while an operator replaces the secret.
pub struct Secrets {
    keys: Vec<Key>,
}

/// A webhook secret is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is empty, so any sender could sign")]
pub struct BadSecret;

impl Secrets {
    /// The current secret, and the previous one for as long as GitHub may still sign with it.
    pub fn new(current: &Secret, previous: Option<&Secret>) -> Result<Self, BadSecret> {
        let secrets = std::iter::once(current).chain(previous);
        let key = |secret: &Secret| match secret.reveal() {
            "" => Err(BadSecret),
            text => Ok(Key::new(HMAC_SHA256, text.as_bytes())),
        };
        Ok(Self { keys: secrets.map(key).collect::<Result<_, _>>()? })
    }

    /// Whether `signature` (`sha256=` and 64 hexadecimal digits) signs `body` with one of the
    /// secrets.
    pub fn verify(&self, body: &[u8], signature: &str) -> bool {
        let Some(digest) = signature.strip_prefix(PREFIX).and_then(digest_of) else { return false };
        self.keys.iter().any(|key| hmac::verify(key, body, &digest).is_ok())
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({} ***)", self.keys.len())
    }
}

/// Whether the text has the form of a signature.
pub(super) fn is_well_formed(text: &str) -> bool {
    text.strip_prefix(PREFIX).and_then(digest_of).is_some()
}

/// The value of `X-Hub-Signature-256` for a body.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    let tag = hmac::sign(&Key::new(HMAC_SHA256, secret.reveal().as_bytes()), body);
    format!("{PREFIX}{}", hex::encode(tag))
}

fn digest_of(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    let mut digest = [0; DIGEST_BYTES];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}
