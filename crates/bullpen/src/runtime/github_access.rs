//! Access to GitHub: with a credential, with tokens that `refresh` kept, or none.
//!
//! A command without a credential of its own registers runners with a kept token, and leaves their
//! removal to the agents.
//!
//! Not here: GitHub itself (`bullpen-github`).

use std::sync::Arc;
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::{Repository, RunAttempt, RunnerName};
use bullpen_core::mailbox::{Credential, Secret};
use bullpen_core::parameters::KeptTokens;
use bullpen_core::ports::{Clock as _, Fault, Forge, Runner, RunnerSpec, RunnerTokens};
use bullpen_core::time::Timestamp;
use bullpen_embedded::system::SystemClock;
use bullpen_github::{App, AppKey, GitHub, Login, Settings};

use super::RuntimeError;
use crate::inputs::{self, GithubInputs, Scope, files};

/// The error of a call that needs a credential, with advice.
const NO_CREDENTIAL: &str = "no credential for GitHub: give INPUT_GITHUB_TOKEN, \
                             --github-token-file, or --app-id and --app-key, or let a scheduled \
                             refresh that has one keep tokens";

/// A kept token must live at least this long, because the runner registers later.
const TOKEN_LASTS: std::time::Duration = std::time::Duration::from_secs(5 * 60);

/// How this command reaches GitHub.
pub(crate) struct GithubAccess {
    /// A client whose credential manages runners.
    manager: Option<GitHub<SystemClock>>,
    /// A client whose credential only reads runs.
    reader: Option<GitHub<SystemClock>>,
    /// The tokens that `refresh` kept.
    kept: Option<KeptTokens>,
    clock: Arc<SystemClock>,
}

impl GithubAccess {
    pub(crate) fn new(
        manager: Option<GitHub<SystemClock>>,
        reader: Option<GitHub<SystemClock>>,
        kept: Option<KeptTokens>,
        clock: Arc<SystemClock>,
    ) -> Self {
        Self { manager, reader, kept, clock }
    }

    /// Opens the clients that the inputs configure.
    pub(super) fn open(
        inputs: &GithubInputs,
        stack: &str,
        kept: Option<KeptTokens>,
        clock: &Arc<SystemClock>,
    ) -> Result<Self, RuntimeError> {
        let app = |id: u64, key: &Secret| -> Result<App, RuntimeError> {
            let key = AppKey::from_pem(key.reveal())?;
            Ok(App { id: id.to_string(), key, installation: None })
        };
        let client = |login: Login,
                      more: Vec<App>|
         -> Result<Option<GitHub<SystemClock>>, RuntimeError> {
            let Some(scope) = &inputs.scope else { return Ok(None) };
            let scope = match scope {
                Scope::Repository(repository) => bullpen_github::Scope::parse(repository.as_str())?,
                Scope::Organisation(name) => bullpen_github::Scope::parse(name)?,
            };
            // Runners are `<stack>-<instance>-<generation>`; another stack's name may start with
            // ours.
            let mut settings = Settings::new(scope, login, &format!("{stack}-"));
            settings.base_url.clone_from(&inputs.api_url);
            settings.more_apps = more;
            Ok(Some(GitHub::new(&settings, Arc::clone(clock))?))
        };
        let manager = match &inputs.credential {
            None => None,
            Some(inputs::Credential::Token(token)) => {
                client(Login::Token(token.clone()), Vec::new())?
            }
            Some(inputs::Credential::TokenFile(path)) => {
                client(Login::Token(files::token(path)?), Vec::new())?
            }
            Some(inputs::Credential::App { id, key }) => {
                let more = inputs.more_apps.iter().map(|(id, key)| app(*id, key));
                let more = more.collect::<Result<_, _>>()?;
                client(Login::App(app(*id, &files::app_key(key)?)?), more)?
            }
        };
        let reader = match &inputs.run_reader {
            Some(token) => client(Login::Token(token.clone()), Vec::new())?,
            None => None,
        };
        Ok(Self::new(manager, reader, kept, Arc::clone(clock)))
    }

    /// Whether the credential can list and delete runners.
    pub(crate) fn manages(&self) -> bool {
        self.manager.is_some()
    }

    /// The client whose credential manages runners, if there is one.
    pub(crate) fn manager(&self) -> Option<&GitHub<SystemClock>> {
        self.manager.as_ref()
    }

    /// Whether a credential can read runs.
    pub(crate) fn reads(&self) -> bool {
        self.manager.is_some() || self.reader.is_some()
    }

    /// The token with which agents remove their runners, for a command that cannot remove them.
    pub(crate) fn removal_token(&self) -> Option<Secret> {
        let kept = self.kept.as_ref().filter(|_| self.manager.is_none())?;
        self.lasts(kept.expires_at).then(|| kept.removal.clone())
    }

    fn lasts(&self, until: Timestamp) -> bool {
        self.clock.now().after(TOKEN_LASTS) < until
    }
}

impl Forge for GithubAccess {
    async fn credential(&self, runner: &RunnerSpec) -> Result<Credential, Fault> {
        if let Some(manager) = &self.manager {
            return manager.credential(runner).await;
        }
        match &self.kept {
            Some(kept) if self.lasts(kept.expires_at) && !runner.ephemeral => {
                Ok(Credential::RegistrationToken(kept.registration.clone()))
            }
            Some(kept) => Err(Fault::Denied(format!(
                "the tokens that refresh kept end at {}; {NO_CREDENTIAL}",
                kept.expires_at
            ))),
            None => Err(Fault::Denied(NO_CREDENTIAL.to_owned())),
        }
    }

    fn credential_wait(&self) -> Duration {
        self.manager.as_ref().map_or(Duration::ZERO, Forge::credential_wait)
    }

    async fn delete(&self, runner: &RunnerName) -> Deletion {
        match &self.manager {
            Some(manager) => manager.delete(runner).await,
            None => Deletion::Unavailable,
        }
    }

    async fn runners(&self) -> Result<Vec<Runner>, Fault> {
        match &self.manager {
            Some(manager) => manager.runners().await,
            None => Err(Fault::Denied(NO_CREDENTIAL.to_owned())),
        }
    }

    async fn tokens(&self) -> Result<RunnerTokens, Fault> {
        match &self.manager {
            Some(manager) => manager.tokens().await,
            None => Err(Fault::Denied(NO_CREDENTIAL.to_owned())),
        }
    }

    async fn is_from_fork(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        match self.reader.as_ref().or(self.manager.as_ref()) {
            Some(github) => Forge::is_from_fork(github, repository, run).await,
            None => Err(Fault::Denied(NO_CREDENTIAL.to_owned())),
        }
    }

    async fn is_over(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        // The workflow's own token reads its runs; the managing credential may lack that
        // permission.
        match self.reader.as_ref().or(self.manager.as_ref()) {
            Some(github) => github.is_over(repository, run).await,
            None => Err(Fault::Denied(NO_CREDENTIAL.to_owned())),
        }
    }
}
