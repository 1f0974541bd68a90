//! The ladder: what creation tries next for a request that is still short, and when it is over.
//!
//! Not here: the rungs themselves (`core::creation`), or one launch ([`super::creation`]).

use bullpen_core::class::Usage;
use bullpen_core::creation::{CeilingReached, RungResult, next_rung};
use bullpen_core::ports::Ports;
use bullpen_core::request::OnPartial;

use super::ProvisionError;
use super::creation::{self, CreationError};
use super::worker::{HeldMachine, Terms};
use crate::Stack;

/// What creation has tried so far.
#[derive(Debug, Default)]
pub(super) struct Ladder {
    pub(super) attempts: u32,
    last: Option<RungResult>,
    /// How many launches in a row brought machines of which none was fit: a script that always fails
    /// would otherwise have machines launched until the deadline.
    in_vain: u32,
    /// The ceiling that is waited for: why time ran out, if it does.
    ceiling: Option<CeilingReached>,
}

impl Ladder {
    /// Tries the next rung for what is missing.
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
            || self.in_vain >= stack.limits.launch_attempts_max
            || (!first && request.on_partial == OnPartial::Fail);
        if is_over {
            return Err(short);
        }
        let usage: Usage =
            next_rung(request.usage, request.on_demand_fallback, self.last).ok_or(short)?;
        let count = u32::try_from(missing).unwrap_or(u32::MAX);
        // Boxed: most requests never get here, and all of them would carry it.
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
        let is_in_vain = created.any_came && created.ready.is_empty();
        self.in_vain = if is_in_vain { self.in_vain + 1 } else { 0 };
        Ok(created.ready)
    }

    /// Why there is nothing more to try.
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
