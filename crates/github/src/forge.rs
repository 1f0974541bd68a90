//! The `Forge` port on GitHub.
//!
//! Not here: the single calls (`runners`, `runs`).

use std::future::Future;
use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::forge_rates::{CallPriority, CallPurpose};
use bullpen_core::ids::{Repository, RunAttempt, RunnerName};
use bullpen_core::job::Origin;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock, Fault, Forge, JobForge, Runner, RunnerSpec, RunnerTokens};

use crate::client::GitHub;
use crate::limits::{METHOD_TIMEOUT, POINTS_WRITE};
use crate::login::Account;
use crate::runs::Status;
use crate::wire::within;

impl<C: Clock> GitHub<C> {
    /// Limits a port's method with all its calls to [`METHOD_TIMEOUT`].
    pub(crate) async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let done = within(self.wire.clock(), METHOD_TIMEOUT, work).await;
        done.unwrap_or_else(|| Err(method_timed_out()))
    }
}

/// The fault of a method whose calls together took too long.
pub(crate) fn method_timed_out() -> Fault {
    let waited_s = METHOD_TIMEOUT.as_secs();
    Fault::Unavailable(format!("GitHub's answers took more than {waited_s} s together"))
}

impl<C: Clock> Forge for GitHub<C> {
    async fn credential(&self, runner: &RunnerSpec) -> Result<Credential, Fault> {
        self.in_time(async {
            if runner.ephemeral {
                return Ok(Credential::Jit(self.jit(runner).await?.config));
            }
            Ok(Credential::RegistrationToken(self.registration_token().await?.token))
        })
        .await
    }

    fn credential_wait(&self) -> Duration {
        let now = self.wire.clock().monotonic();
        let wait = |account: &Account| {
            account.meter.budget().wait(now, CallPriority::Urgent, POINTS_WRITE)
        };
        self.accounts().iter().map(wait).min().unwrap_or_default()
    }

    async fn delete(&self, runner: &RunnerName) -> Deletion {
        match self.in_time(self.delete_named(runner)).await {
            Ok(deletion) => deletion,
            Err(fault) => {
                tracing::warn!(runner = %runner, %fault, "could not delete the runner");
                Deletion::Unavailable
            }
        }
    }

    async fn runners(&self) -> Result<Vec<Runner>, Fault> {
        let listed = self.in_time(self.list()).await?;
        let known = listed.into_iter().map(|runner| Runner {
            name: runner.name,
            online: runner.online,
            busy: runner.busy,
        });
        Ok(known.collect())
    }

    async fn tokens(&self) -> Result<RunnerTokens, Fault> {
        self.in_time(async {
            // Fresh ones instead of the kept token, so that they last as long as possible.
            let registration = self.token("registration-token").await?;
            let removal = self.removal_token().await?;
            Ok(RunnerTokens {
                expires_at: registration.expires_at.min(removal.expires_at),
                registration: registration.token,
                removal: removal.token,
            })
        })
        .await
    }

    async fn is_from_fork(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        let known = self.provenance(repository, run).await?;
        // Code of Dependabot or of unknown origin is trusted as little as a fork's.
        Ok(!matches!(known.origin, Some(Origin::Own | Origin::PullRequest)))
    }

    async fn is_over(&self, repository: &Repository, run: &RunAttempt) -> Result<bool, Fault> {
        let Some((id, attempt)) = run.at_github() else {
            return Err(Fault::Denied(format!("{run} is not a workflow run of GitHub's")));
        };
        let found = self.in_time(self.run(repository, id, CallPurpose::Job)).await?;
        // A later attempt means that this one has ended.
        Ok(found.run_attempt > attempt
            || (found.run_attempt == attempt && found.status == Status::Completed))
    }
}
