//! The ladder: decides which launch creation tries next for a request that misses runners, and when
//! creation gives up.
//!
//! Not here: the order of the rungs (`core::creation`), or one launch ([`super::creation`]).

use bullpen_core::class::Usage;
use bullpen_core::creation::{CeilingReached, RungResult, next_rung};
use bullpen_core::ports::Ports;
use bullpen_core::request::OnPartial;

use super::ProvisionError;
use super::creation::{self, CreationError};
use super::worker::{HeldMachine, Terms};
use crate::Stack;

/// The launches that creation has tried so far.
#[derive(Debug, Default)]
pub(super) struct Ladder {
    pub(super) attempts: u32,
    last: Option<RungResult>,
    /// How many launches in a row brought only unfit machines: for a script that always fails the
    /// ladder would otherwise launch until the deadline.
    unfit_launches: u32,
    /// The ceiling that the request waits for: the reason if time runs out.
    ceiling: Option<CeilingReached>,
}

impl Ladder {
    /// Tries the next rung for the missing runners; returns those that listen.
    pub(super) async fn climb<P: Ports>(
        &mut self,
        stack: &Stack<P>,
        terms: &Terms<'_>,
        missing: usize,
    ) -> Result<Vec<HeldMachine>, ProvisionError> {
        let request = terms.request;
        let short = self.short(stack, missing, terms);
        let first = self.last.is_none();
        let is_over = stack.now() >= request.deadline
            || self.unfit_launches >= stack.limits.launch_attempts_max
            || (!first && request.on_partial == OnPartial::Fail);
        if is_over {
            return Err(short);
        }
        let usage: Usage =
            next_rung(request.usage, request.on_demand_fallback, self.last).ok_or(short)?;
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        // Boxed: most requests never launch, but the future of each would contain this one.
        let created = creation::create(stack, terms, usage, count, self.attempts + 1);
        let created = Box::pin(created).await;
        self.ceiling = match &created {
            Err(CreationError::Ceiling(reached)) => Some(reached.clone()),
            Ok(_) | Err(CreationError::Port { .. }) => None,
        };
        let created = created.map_err(|source| ProvisionError::Creation {
            missing,
            requested: request.count,
            source,
        })?;
        self.attempts += 1;
        let Some(created) = created else { return Ok(Vec::new()) };
        self.last = Some(RungResult { usage, any_came: created.any_came });
        let is_unfit = created.any_came && created.ready.is_empty();
        self.unfit_launches = if is_unfit { self.unfit_launches + 1 } else { 0 };
        Ok(created.ready)
    }

    /// The error for a request that has no rung left to try.
    fn short<P: Ports>(
        &self,
        stack: &Stack<P>,
        missing: usize,
        terms: &Terms<'_>,
    ) -> ProvisionError {
        let requested = terms.request.count;
        if let Some(reached) = &self.ceiling {
            let source = CreationError::Ceiling(reached.clone());
            return ProvisionError::Creation { missing, requested, source };
        }
        let came = self.last.is_some_and(|last| last.any_came);
        if let Some(why) = terms.last_failure().filter(|_| came) {
            return ProvisionError::Unfit { missing, requested, why };
        }
        let said = stack.shortages().words(stack.now());
        ProvisionError::Short { missing, requested, said }
    }
}
