//! The port to GitHub, for runners and runs.
//!
//! Not here: jobs (`job_forge`).

use std::future::Future;
use std::time::Duration;

use super::Fault;
use crate::claim::Deletion;
use crate::ids::{Repository, RunAttempt, RunnerGroup, RunnerName};
use crate::mailbox::{Credential, Secret};
use crate::time::Timestamp;

/// The runner for which a credential is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSpec {
    /// Its name. A second JIT configuration under the same name replaces the first.
    pub name: RunnerName,
    /// Its labels.
    pub labels: Vec<String>,
    /// The runner group it joins; the forge's default if absent.
    pub group: Option<RunnerGroup>,
    /// Whether it serves one job only.
    pub ephemeral: bool,
}

/// A runner as GitHub lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Its name.
    pub name: RunnerName,
    /// Whether its listener is connected.
    pub online: bool,
    /// Whether it runs a job.
    pub busy: bool,
}

/// The tokens by which any runner of the scope can register and remove itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerTokens {
    /// Registers a runner.
    pub registration: Secret,
    /// Removes a runner.
    pub removal: Secret,
    /// When the first of the two expires.
    pub expires_at: Timestamp,
}

/// The forge that runs jobs.
///
/// Contract: `delete` never interrupts a job: it leaves a busy runner alone and reports it as busy.
/// Weak arm: listings lag; a runner may take a job between any two calls; GitHub may be down,
/// throttle or refuse for minutes. Such a fault is systemic: no machine is its cause.
pub trait Forge: Send + Sync {
    /// A credential for one runner.
    fn credential(
        &self,
        runner: &RunnerSpec,
    ) -> impl Future<Output = Result<Credential, Fault>> + Send;
    /// How long until the forge's limits allow a credential, as far as this process knows; zero if
    /// it does not know. Makes no call.
    fn credential_wait(&self) -> Duration;
    /// Deletes a runner by its name. Never an `Err`: no answer is [`Deletion::Unavailable`].
    fn delete(&self, runner: &RunnerName) -> impl Future<Output = Deletion> + Send;
    /// All runners whose name begins with the stack's prefix, all pages.
    fn runners(&self) -> impl Future<Output = Result<Vec<Runner>, Fault>> + Send;
    /// Tokens for the service to keep, for runners that have no credential of their own.
    fn tokens(&self) -> impl Future<Output = Result<RunnerTokens, Fault>> + Send;
    /// Whether this run executes code of a fork.
    fn is_from_fork(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<bool, Fault>> + Send;
    /// Whether this attempt of a workflow run is over: no job of it will start any more.
    fn is_over(
        &self,
        repository: &Repository,
        run: &RunAttempt,
    ) -> impl Future<Output = Result<bool, Fault>> + Send;
}
