//! Whether GitHub signed these bytes: HMAC-SHA-256 over the raw body, compared in constant time.
//!
//! Not here: what the bytes say (`event`).

use std::fmt;

use bullpen_core::mailbox::Secret;
use ring::hmac::{self, HMAC_SHA256, Key};

const PREFIX: &str = "sha256=";
/// A SHA-256 in bytes.
const DIGEST_BYTES: usize = 32;

/// The secrets that a webhook may be signed with. While one is exchanged for another there are two.
pub struct Secrets {
    keys: Vec<Key>,
}

/// A secret that protects nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a webhook secret is empty: anybody could sign")]
pub struct BadSecret;

impl Secrets {
    /// The present secret, and the one before it for as long as GitHub may still use that.
    pub fn new(current: &Secret, previous: Option<&Secret>) -> Result<Self, BadSecret> {
        let secrets = std::iter::once(current).chain(previous);
        let key = |secret: &Secret| match secret.reveal() {
            "" => Err(BadSecret),
            text => Ok(Key::new(HMAC_SHA256, text.as_bytes())),
        };
        Ok(Self { keys: secrets.map(key).collect::<Result<_, _>>()? })
    }

    /// Whether `signature` (`sha256=` and 64 hexadecimal digits) is one of ours over `body`.
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

/// Whether this has the form of a signature.
pub(super) fn is_one(text: &str) -> bool {
    text.strip_prefix(PREFIX).and_then(digest_of).is_some()
}

/// The value of `X-Hub-Signature-256` for these bytes.
pub fn sign(secret: &Secret, body: &[u8]) -> String {
    let tag = hmac::sign(&Key::new(HMAC_SHA256, secret.reveal().as_bytes()), body);
    format!("{PREFIX}{}", hex::encode(tag))
}

fn digest_of(text: &str) -> Option<[u8; DIGEST_BYTES]> {
    let mut digest = [0; DIGEST_BYTES];
    hex::decode_to_slice(text, &mut digest).ok()?;
    Some(digest)
}
