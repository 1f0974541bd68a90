//! Authentication: a personal access token, or an App's installation token, which [`AppSession`]
//! requests, keeps and replaces before it ends. Each [`Account`] has its own budget.
//!
//! Not here: signing (`app`), and choosing among accounts (`client`).

use bullpen_core::forge_rates::{CallCounts, CallPurpose};
use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Fault};
use bullpen_core::time::Timestamp;
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::fault::NotFoundMeans;
use crate::limits::TOKEN_EARLY;
use crate::meter::Meter;
use crate::settings::{App, Login, Scope};
use crate::wire::{Answer, Call, Wire};

/// A login at GitHub, and its rate-limit budget.
#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) session: Session,
    pub(crate) meter: Meter,
    /// GitHub counts an App's own calls apart from those of its installation.
    as_app: Meter,
}

impl Account {
    pub(crate) fn new(login: &Login, scope: &Scope) -> Self {
        let session = Session::new(login, scope);
        Self { session, meter: Meter::new(), as_app: Meter::new() }
    }

    /// Adds its calls so far.
    pub(crate) fn add_counts(&self, all: &mut CallCounts) {
        self.meter.add_counts(all);
        self.as_app.add_counts(all);
    }

    /// Makes a call. If GitHub refuses an installation token, retries once with a new one: a call
    /// that was refused for its credential had no effect.
    pub(crate) async fn call<C: Clock>(
        &self,
        wire: &Wire<C>,
        call: &Call,
    ) -> Result<Answer, Fault> {
        let bearer = self.session.bearer(wire, &self.as_app).await?;
        let answer = wire.send(call, &bearer, &self.meter).await?;
        if answer.status != 401 || !self.session.discard(&bearer).await {
            return Ok(answer);
        }
        let bearer = self.session.bearer(wire, &self.as_app).await?;
        wire.send(call, &bearer, &self.meter).await
    }

    /// The App's installation; `None` for a token.
    pub(crate) async fn installation<C: Clock>(
        &self,
        wire: &Wire<C>,
    ) -> Result<Option<u64>, Fault> {
        let Session::App(session) = &self.session else { return Ok(None) };
        session.installation(wire, &self.as_app).await.map(Some)
    }

    /// Makes a call as the App itself instead of its installation; `None` for a token.
    pub(crate) async fn call_as_app<C: Clock>(
        &self,
        wire: &Wire<C>,
        call: &Call,
    ) -> Result<Option<Answer>, Fault> {
        let Session::App(session) = &self.session else { return Ok(None) };
        let jwt = session.jwt(wire.clock().now())?;
        wire.send(call, &jwt, &self.as_app).await.map(Some)
    }
}

/// A login, and an App's installation and token as far as they are known.
#[derive(Debug)]
pub(crate) enum Session {
    Token(Secret),
    App(Box<AppSession>),
}

#[derive(Debug)]
pub(crate) struct AppSession {
    app: App,
    scope: Scope,
    /// Locked during the call, so that many callers make one call.
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    installation: Option<u64>,
    token: Option<InstallationToken>,
}

#[derive(Clone, Debug, Deserialize)]
struct InstallationToken {
    token: Secret,
    expires_at: Timestamp,
}

#[derive(Deserialize)]
struct Installation {
    id: u64,
}

impl Session {
    fn new(login: &Login, scope: &Scope) -> Self {
        match login {
            Login::Token(token) => Self::Token(token.clone()),
            Login::App(app) => {
                let known = Known { installation: app.installation, token: None };
                let (app, scope) = (app.clone(), scope.clone());
                Self::App(Box::new(AppSession { app, scope, known: Mutex::new(known) }))
            }
        }
    }

    pub(crate) const fn is_app(&self) -> bool {
        matches!(self, Self::App(_))
    }

    /// The token to send.
    async fn bearer<C: Clock>(&self, wire: &Wire<C>, meter: &Meter) -> Result<Secret, Fault> {
        match self {
            Self::Token(token) => Ok(token.clone()),
            Self::App(session) => session.token(wire, meter).await,
        }
    }

    /// Drops a token that GitHub refused; returns whether a new one can be requested.
    async fn discard(&self, bearer: &Secret) -> bool {
        match self {
            Self::Token(_) => false,
            Self::App(session) => {
                let mut known = session.known.lock().await;
                // Another call may have replaced it meanwhile.
                if known.token.as_ref().is_some_and(|kept| kept.token == *bearer) {
                    known.token = None;
                }
                true
            }
        }
    }
}

impl AppSession {
    fn jwt(&self, now: Timestamp) -> Result<Secret, Fault> {
        let jwt = self.app.key.jwt(&self.app.id, now);
        jwt.ok_or_else(|| Fault::Denied("the App's key cannot sign".to_owned()))
    }

    /// The App's current installation for the scope. A reinstalled App has a new id, and its old
    /// token is useless.
    async fn installation<C: Clock>(&self, wire: &Wire<C>, meter: &Meter) -> Result<u64, Fault> {
        if let Some(id) = self.app.installation {
            return Ok(id);
        }
        let mut known = self.known.lock().await;
        let jwt = self.jwt(wire.clock().now())?;
        let id = self.find_installation(wire, meter, &jwt).await?;
        if known.installation != Some(id) {
            *known = Known { installation: Some(id), token: None };
        }
        Ok(id)
    }

    async fn token<C: Clock>(&self, wire: &Wire<C>, meter: &Meter) -> Result<Secret, Fault> {
        let mut known = self.known.lock().await;
        let now = wire.clock().now();
        if let Some(kept) = &known.token
            && now.after(TOKEN_EARLY) < kept.expires_at
        {
            return Ok(kept.token.clone());
        }
        let jwt = self.jwt(now)?;
        let installation = match known.installation {
            Some(id) => id,
            None => self.find_installation(wire, meter, &jwt).await?,
        };
        known.installation = Some(installation);
        let path = format!("/app/installations/{installation}/access_tokens");
        let call = Call::post(CallPurpose::Login, path, None);
        let answer =
            wire.send(&call.urgent(), &jwt, meter).await?.accepted(NotFoundMeans::Scope)?;
        let fresh: InstallationToken = answer.read("installation token")?;
        let token = fresh.token.clone();
        known.token = Some(fresh);
        Ok(token)
    }

    async fn find_installation<C: Clock>(
        &self,
        wire: &Wire<C>,
        meter: &Meter,
        jwt: &Secret,
    ) -> Result<u64, Fault> {
        let path = format!("{}/installation", self.scope.path());
        let call = Call::get(CallPurpose::Login, path).urgent();
        let answer = wire.send(&call, jwt, meter).await?.accepted(NotFoundMeans::Scope)?;
        Ok(answer.read::<Installation>("installation")?.id)
    }
}
