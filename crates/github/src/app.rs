//! A GitHub App's private key, and the JWT that the App signs to authenticate.
//!
//! Not here: exchanging the JWT for an installation token (`login`).

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use ring::rand::SystemRandom;
use ring::signature::{KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Serialize;

use crate::limits::{JWT_BACKDATE, JWT_LIFE};

/// The private key of a GitHub App. Never printed.
#[derive(Clone)]
pub struct AppKey(Arc<RsaKeyPair>);

/// Why a text is not an App's private key.
#[derive(Debug, thiserror::Error)]
pub enum BadKey {
    /// The text contains no key.
    #[error("the text is not a private key in PEM, the format that GitHub offers for download")]
    NotPem,
    /// The key is of another kind, or too short, or damaged.
    #[error("the key is not an RSA key that can sign: {0}")]
    NotRsa(String),
}

impl AppKey {
    /// Parses the `.pem` file that GitHub offers for download.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        // The parser's own error may quote the text, which is the secret.
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| BadKey::NotPem)?;
        let pair = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(BadKey::NotRsa("it is a key of another kind".to_owned())),
        };
        let pair = pair.map_err(|rejected| BadKey::NotRsa(rejected.to_string()))?;
        Ok(Self(Arc::new(pair)))
    }

    /// The public half, as the DER of an `RSAPublicKey`.
    pub fn public_key(&self) -> Vec<u8> {
        self.0.public_key().as_ref().to_vec()
    }

    /// A JWT that authenticates the App `issuer` for [`JWT_LIFE`].
    pub(crate) fn jwt(&self, issuer: &str, now: Timestamp) -> Option<Secret> {
        let claims = Claims {
            iat: seconds(now.before(JWT_BACKDATE)),
            exp: seconds(now.after(JWT_LIFE)),
            iss: issuer,
        };
        let claims = serde_json::to_vec(&claims).ok()?;
        let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
        let signed = format!("{}.{}", encode(HEADER), encode(&claims));
        let mut signature = vec![0; self.0.public().modulus_len()];
        let random = SystemRandom::new();
        self.0.sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature).ok()?;
        Some(Secret::new(&format!("{signed}.{}", encode(&signature))))
    }
}

impl fmt::Debug for AppKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppKey(***)")
    }
}

const HEADER: &[u8] = br#"{"alg":"RS256","typ":"JWT"}"#;

#[derive(Serialize)]
struct Claims<'a> {
    iat: i64,
    exp: i64,
    iss: &'a str,
}

fn seconds(at: Timestamp) -> i64 {
    at.as_millis().div_euclid(1000)
}

#[cfg(test)]
mod tests {
    use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{APP_KEY, APP_KEY_PKCS8};

    fn decoded(part: &str) -> Value {
        serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    }

    #[test]
    fn a_jwt_names_its_issuer_and_its_lifetime_and_is_signed() {
        let key = AppKey::from_pem(APP_KEY).unwrap();
        let now: Timestamp = "2026-05-31T12:00:00.999Z".parse().unwrap();
        let jwt = key.jwt("Iv1.app", now).unwrap();
        let parts: Vec<&str> = jwt.reveal().split('.').collect();
        assert_eq!(decoded(parts[0]), json!({"alg": "RS256", "typ": "JWT"}));
        let noon = 1_780_228_800;
        let claims = json!({"iat": noon - 60, "exp": noon + 540, "iss": "Iv1.app"});
        assert_eq!(decoded(parts[1]), claims);
        let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key());
        let signature = BASE64_URL_SAFE_NO_PAD.decode(parts[2]).unwrap();
        let signed = format!("{}.{}", parts[0], parts[1]);
        assert!(public.verify(signed.as_bytes(), &signature).is_ok());
        assert!(public.verify(b"something else", &signature).is_err());
    }

    #[test]
    fn both_forms_of_a_key_are_the_same_key() {
        let (old, new) = (AppKey::from_pem(APP_KEY).unwrap(), AppKey::from_pem(APP_KEY_PKCS8));
        assert_eq!(old.public_key(), new.unwrap().public_key());
    }

    #[test]
    fn a_text_without_a_key_is_refused_and_not_quoted() {
        for text in ["", "hunter2", "-----BEGIN RSA PRIVATE KEY-----\nhunter2\n"] {
            let error = AppKey::from_pem(text).unwrap_err();
            assert!(!format!("{error:?} {error}").contains("hunter2"), "{error:?}");
        }
        assert_eq!(format!("{:?}", AppKey::from_pem(APP_KEY).unwrap()), "AppKey(***)");
    }
}
