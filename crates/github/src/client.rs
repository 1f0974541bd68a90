//! The client: a login, a way to GitHub, and calls that follow pages.
//!
//! Not here: the calls themselves (`runners`, `runs`), or the port (`forge`).

use std::fmt;
use std::sync::Arc;

use bullpen_core::mailbox::Secret;
use bullpen_core::ports::{Clock, Fault};
use hyper::header::HeaderValue;

use crate::fault::Absent;
use crate::limits::PAGES_MAX;
use crate::login::Session;
use crate::runners::Token;
use crate::settings::{BadSettings, Login, Scope, Settings};
use crate::wire::{Answer, Call, Wire};

/// GitHub, for one scope and one credential. Share it: it keeps connections and tokens.
pub struct GitHub<C> {
    pub(crate) wire: Wire<C>,
    pub(crate) scope: Scope,
    pub(crate) prefix: String,
    pub(crate) runner_group: u64,
    /// Good for any number of runners; held while asking, so that many callers ask once.
    pub(crate) registration: tokio::sync::Mutex<Option<Token>>,
    session: Session,
}

impl<C> fmt::Debug for GitHub<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scope, prefix) = (&self.scope, &self.prefix);
        f.debug_struct("GitHub")
            .field("scope", scope)
            .field("prefix", prefix)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> GitHub<C> {
    /// A client. Nothing is asked yet.
    pub fn new(settings: &Settings, clock: Arc<C>) -> Result<Self, BadSettings> {
        if settings.prefix.is_empty() {
            return Err(BadSettings::NoPrefix);
        }
        if let Login::Token(token) = &settings.login
            && !is_sendable(token)
        {
            return Err(BadSettings::Token);
        }
        Ok(Self {
            wire: Wire::new(settings, clock)?,
            scope: settings.scope.clone(),
            prefix: settings.prefix.clone(),
            runner_group: settings.runner_group,
            registration: tokio::sync::Mutex::new(None),
            session: Session::new(&settings.login, &settings.scope),
        })
    }

    /// Makes a call as whom we are. A token that GitHub no longer accepts is replaced once: a call
    /// that was refused for its credential had no effect.
    pub(crate) async fn call(&self, call: &Call) -> Result<Answer, Fault> {
        let bearer = self.session.bearer(&self.wire).await?;
        let answer = self.wire.send(call, &bearer).await?;
        if answer.status != 401 || !self.session.refused(&bearer).await {
            return Ok(answer);
        }
        let bearer = self.session.bearer(&self.wire).await?;
        self.wire.send(call, &bearer).await
    }

    /// Every page of a listing, each as `read` takes it apart.
    pub(crate) async fn pages<T>(
        &self,
        path: String,
        absent: Absent,
        read: impl Fn(&Answer) -> Result<Vec<T>, Fault>,
    ) -> Result<Vec<T>, Fault> {
        let mut items = Vec::new();
        let mut next = Some(path);
        for _ in 0..PAGES_MAX {
            let Some(path) = next else { return Ok(items) };
            let answer = self.call(&Call::get(path)).await?.accepted(absent)?;
            items.extend(read(&answer)?);
            next = answer.next;
        }
        match next {
            None => Ok(items),
            // Part of a listing must not pass for all of it.
            Some(_) => Err(Fault::Unreadable(format!("a listing of more than {PAGES_MAX} pages"))),
        }
    }
}

fn is_sendable(token: &Secret) -> bool {
    let fits = !token.reveal().is_empty() && !token.reveal().contains(char::is_whitespace);
    fits && HeaderValue::from_str(token.reveal()).is_ok()
}
