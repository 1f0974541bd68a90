//! The caller of a request: a person by their token, an App by its JWT, or one of its installations.
//!
//! Not here: what each may do (`rest`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bullpen_core::mailbox::Secret;
use bullpen_core::time::Timestamp;
use ring::digest;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde::Deserialize;

use super::hooks::Hook;
use super::http::{RequestHead, StandInReply};
use super::state::{GrantKind, State};
use crate::settings::Scope;

/// The callers that the stand-in accepts, and their budget.
#[derive(Clone, Debug)]
pub struct Options {
    /// The one personal access token that it accepts. A test's requests need it too, and every token
    /// that it hands out is made of it.
    pub token: Secret,
    /// The App it knows.
    pub app: Option<KnownApp>,
    /// More Apps that it knows.
    pub more_apps: Vec<KnownApp>,
    /// Where webhooks go; nowhere until this is known.
    pub hook: Option<Hook>,
    /// Calls an hour, for each bearer.
    pub calls_per_hour: u64,
}

impl Options {
    /// Accepts this token and no App.
    pub fn new(token: Secret) -> Self {
        Self { token, app: None, more_apps: Vec::new(), hook: None, calls_per_hour: 5_000 }
    }

    /// Whether this is the one token.
    pub(super) fn accepts(&self, bearer: Option<&str>) -> bool {
        let digest = |text: &str| digest::digest(&digest::SHA256, text.as_bytes());
        // Of digests, so that the time it takes says nothing of the token.
        let same = |bearer: &str| digest(bearer).as_ref() == digest(self.token.reveal()).as_ref();
        bearer.is_some_and(|bearer| !bearer.is_empty() && same(bearer))
    }

    /// The App of this id.
    pub(super) fn app(&self, id: &str) -> Option<&KnownApp> {
        self.app.iter().chain(&self.more_apps).find(|app| app.id == id)
    }
}

/// A GitHub App as GitHub knows it.
#[derive(Clone, Debug)]
pub struct KnownApp {
    /// Its client id, or its numeric id.
    pub id: String,
    /// The public half of its key: `AppKey::public_key`.
    pub public_key: Vec<u8>,
    /// Where it is installed: the accounts by installation.
    pub installations: BTreeMap<u64, String>,
}

/// The caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A personal access token, which may do everything here.
    Person,
    /// The App of this id itself, which may become an installation and ask about its webhooks.
    App(String),
    /// An installation of it on this account.
    Installation(String),
}

impl Caller {
    /// Whether this caller may see what belongs to `owner`.
    pub(super) fn may_see(&self, owner: &str) -> bool {
        match self {
            Self::Person => true,
            Self::App(_) => false,
            Self::Installation(account) => account.eq_ignore_ascii_case(owner),
        }
    }
}

/// Judges the credential of a request.
pub(super) fn caller(
    head: &RequestHead,
    state: &State,
    options: &Options,
    now: Timestamp,
) -> Result<Caller, StandInReply> {
    let Some(bearer) = head.bearer.as_deref().filter(|bearer| !bearer.is_empty()) else {
        return Err(StandInReply::refusal(401, "Requires authentication"));
    };
    if let Some(scope) = state.granted(bearer, GrantKind::Installation, now) {
        return Ok(match scope {
            Scope::Organization(account) => Caller::Installation(account.clone()),
            Scope::Repository { owner, .. } => Caller::Installation(owner.clone()),
        });
    }
    let bad = || StandInReply::refusal(401, "Bad credentials");
    if bearer.split('.').count() == 3 {
        return judge_jwt(bearer, options, now).map(Caller::App);
    }
    if options.accepts(Some(bearer)) { Ok(Caller::Person) } else { Err(bad()) }
}

#[derive(Deserialize)]
struct Claims {
    iat: i64,
    exp: i64,
    iss: String,
}

fn judge_jwt(jwt: &str, options: &Options, now: Timestamp) -> Result<String, StandInReply> {
    let refuse = |message| Err(StandInReply::refusal(401, message));
    let undecodable = "A JSON web token could not be decoded";
    let Some((signed, signature)) = jwt.rsplit_once('.') else { return refuse(undecodable) };
    let Ok(signature) = BASE64_URL_SAFE_NO_PAD.decode(signature) else {
        return refuse(undecodable);
    };
    let claims = signed.split_once('.').and_then(|(_, it)| BASE64_URL_SAFE_NO_PAD.decode(it).ok());
    let claims = claims.and_then(|bytes| serde_json::from_slice::<Claims>(&bytes).ok());
    let Some(claims) = claims else { return refuse(undecodable) };
    let now = now.as_millis().div_euclid(1000);
    let Some(app) = options.app(&claims.iss) else { return refuse("Integration not found") };
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &app.public_key);
    if key.verify(signed.as_bytes(), &signature).is_err() {
        return refuse(undecodable);
    }
    if claims.iat > now {
        return refuse(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        );
    }
    if claims.exp <= now || claims.exp > now + 10 * 60 {
        return refuse(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        );
    }
    Ok(claims.iss)
}
