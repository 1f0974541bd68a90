//! The `Forge` port on GitHub.
//!
//! Not here: the calls (`runners`).

use std::future::Future;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Clock, Fault, Forge, Runner, RunnerSpec};

use crate::client::GitHub;
use crate::limits::METHOD_TIMEOUT;
use crate::wire::within;

impl<C: Clock> GitHub<C> {
    /// No method waits for longer than this room's own limit, however many calls it takes.
    async fn in_time<T>(&self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        within(self.wire.clock(), METHOD_TIMEOUT, work).await.unwrap_or_else(|| Err(in_vain()))
    }
}

/// All calls of a method together took too long.
pub(crate) fn in_vain() -> Fault {
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
}
