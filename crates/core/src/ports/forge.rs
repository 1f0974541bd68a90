//! GitHub, as far as runners are concerned.

use std::future::Future;

use super::Fault;
use crate::claim::Deletion;
use crate::ids::{Repository, RunAttempt, RunnerGroup, RunnerName};
use crate::mailbox::{Credential, Secret};
use crate::time::Timestamp;

/// The runner that a credential is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSpec {
    /// Its name. Asking for a JIT configuration again under the same name replaces the first.
    pub name: RunnerName,
    /// Its labels.
    pub labels: Vec<String>,
    /// The group it joins; the forge's own default if absent.
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

/// What any runner of the scope can register and remove itself with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerTokens {
    /// Registers.
    pub registration: Secret,
    /// Removes.
    pub removal: Secret,
    /// When the first of the two ends.
    pub expires_at: Timestamp,
}

/// The forge that runs jobs.
///
/// Contract: `delete` never interrupts a job: a busy runner is left as it is and reported as such.
/// Weak arm: listings lag; a runner may take a job between any two calls; everything may be down,
/// throttled or refused for minutes. Such a fault is systemic: it says nothing about a machine.
pub trait Forge: Send + Sync {
    /// A credential for one runner.
    fn credential(
        &self,
        runner: &RunnerSpec,
    ) -> impl Future<Output = Result<Credential, Fault>> + Send;
    /// Deletes a runner by its name. Never an `Err`: no answer is [`Deletion::Unavailable`].
    fn delete(&self, runner: &RunnerName) -> impl Future<Output = Deletion> + Send;
    /// All runners whose name begins with the stack's prefix, all pages.
    fn runners(&self) -> impl Future<Output = Result<Vec<Runner>, Fault>> + Send;
    /// Tokens to be kept for those who have no credential of their own.
    fn tokens(&self) -> impl Future<Output = Result<RunnerTokens, Fault>> + Send;
    /// Whether code of a fork runs in this run.
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
