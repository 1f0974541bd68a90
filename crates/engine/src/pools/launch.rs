//! Launching for a pool: journal, reservation, launch, records; each before the next.
//!
//! A launch is in the journal before it is reserved. Whoever finds one there that is not accounted for
//! makes the same launch again, under the same id, and gets the same machines.
//!
//! Not here: one launch ([`crate::provision::creation`]), or how many.

use bullpen_core::class::Usage;
use bullpen_core::creation::Intent;
use bullpen_core::ids::Revision;
use bullpen_core::instance::Owner;
use bullpen_core::pool::journal::launch_id;
use bullpen_core::pool::{Blueprint, Journal};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::sabotage;

use super::execute::PoolPass;
use super::journals;
use crate::provision::creation::{self, CreationError, LaunchShape, Reservation};

impl<P: Ports> PoolPass<'_, P> {
    /// Goes on with launches that somebody began and did not account for.
    pub(super) async fn resume(&mut self) {
        let Some(blueprint) = self.found.blueprint.clone() else { return };
        for intent in std::mem::take(&mut self.found.unreserved) {
            self.launch("resumed", &blueprint, &intent).await;
        }
        let open = self.found.observed.launches.clone();
        let reserved = open.into_iter().filter(|intent| intent.revision > Revision(0));
        for intent in reserved.filter(|intent| self.stack.now() < intent.deadline) {
            self.carry_on("resumed", &blueprint, &Reservation::found(intent)).await;
        }
    }

    /// Launches so many more.
    pub(super) async fn create(&mut self, usage: Usage, count: u32) {
        let Some(blueprint) = self.found.blueprint.clone() else { return };
        let stack = self.stack;
        let number = self.found.journal.next_launch(stack.now());
        let intent = Intent {
            id: launch_id(&self.found.pool, number),
            owner: Owner::Pool(self.found.pool.clone()),
            trust: None,
            class: blueprint.class.name.clone(),
            pool: Some(self.found.pool.clone()),
            usage,
            spec_hash: blueprint.spec_hash.clone(),
            count,
            avoid: stack.shortages().at(stack.now()),
            outstanding: count,
            deadline: stack.now().after(stack.limits.fleet_validation),
            // Nothing of it is stored; a reserved one has a revision.
            revision: Revision(0),
        };
        match self.begin(number, &intent).await {
            Ok(true) => self.launch("missing", &blueprint, &intent).await,
            // Somebody else writes: an operator, or whoever has the lease now.
            Ok(false) => {}
            Err(fault) => {
                let said = Some(fault.to_string());
                self.note(("create", "missing"), count as usize, 0, said);
            }
        }
    }

    /// Writes a launch down; whether that is certain.
    async fn begin(&mut self, number: u64, intent: &Intent) -> Result<bool, Fault> {
        let (stack, pool) = (self.stack, &self.found.pool);
        let Some(token) = self.leases.token(stack, pool) else { return Ok(false) };
        if token < self.found.journal.token {
            return Ok(false);
        }
        if sabotage!("launch-before-the-journal") {
            return Ok(true);
        }
        let journal = self.found.journal.clone().with_launch(number, intent.clone());
        let journal = Journal { token, ..journal };
        let written = journals::write(stack, pool, self.found.revision, &journal, None).await?;
        if let Some(revision) = written {
            self.found.stored = journal.clone();
            self.found.journal = journal;
            self.found.revision = Some(revision);
        }
        Ok(written.is_some())
    }

    async fn launch(&mut self, why: &str, blueprint: &Blueprint, intent: &Intent) {
        let ceilings = blueprint.ceilings(&self.stack.ceilings);
        match creation::reserve_under(self.stack, intent, &ceilings).await {
            Ok(reserved) => self.carry_on(why, blueprint, &reserved).await,
            Err(error) => self.came_to_nothing(why, intent, &error),
        }
    }

    async fn carry_on(&mut self, why: &str, blueprint: &Blueprint, reserved: &Reservation) {
        let shape =
            LaunchShape { class: &blueprint.class, allowed_types: &blueprint.allowed_types };
        let intent = &reserved.intent;
        match creation::launch_and_record(self.stack, shape, reserved).await {
            Ok(records) => {
                let (asked, came) = (intent.outstanding as usize, records.len());
                let words = || self.stack.shortages().words(self.stack.now());
                let said = (came < asked).then(|| format!("{}{}", Fault::NoCapacity, words()));
                if came == 0 {
                    let until = self.stack.now().after(self.stack.limits.shortage_memory);
                    self.found.journal.short_until = Some(until);
                }
                self.note(("create", why), asked, came, said);
            }
            Err(error) => self.came_to_nothing(why, intent, &error),
        }
    }

    fn came_to_nothing(&mut self, why: &str, intent: &Intent, error: &CreationError) {
        if error.is_final() {
            let until = self.stack.now().after(self.stack.limits.shortage_memory);
            self.found.journal.short_until = Some(until);
        }
        let said = match error {
            CreationError::Port { what, source } => format!("could not {what}: {source}"),
            CreationError::Ceiling(reached) => reached.to_string(),
        };
        self.note(("create", why), intent.outstanding as usize, 0, Some(said));
    }
}
