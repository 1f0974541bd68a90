//! GitHub, as far as runners are concerned.

use std::future::Future;

use super::Fault;
use crate::claim::Deletion;
use crate::ids::RunnerName;
use crate::mailbox::Credential;

/// The runner that a credential is wanted for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunnerSpec {
    /// Its name. Asking for a JIT configuration again under the same name replaces the first.
    pub name: RunnerName,
    /// Its labels.
    pub labels: Vec<String>,
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
}
