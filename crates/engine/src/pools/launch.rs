//! Launching for a pool: journal, reservation, launch, records; each before the next.
//!
//! A replica writes a launch into the journal before it reserves it. A replica that finds a launch
//! there that is not accounted for repeats it under the same id, and gets the same machines.
//!
//! Not here: one launch ([`crate::provision::creation`]), or how many machines (`core::pool`).

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
    /// Continues launches that a replica began and did not account for.
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

    /// Launches `count` more machines.
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
            // Not stored yet; a reserved intent has a revision.
            revision: Revision(0),
        };
        match self.begin(number, &intent).await {
            Ok(true) => self.launch("missing", &blueprint, &intent).await,
            // Another process wrote the journal: an operator's command, or the lease's new holder.
            Ok(false) => {}
            Err(fault) => {
                let problem = Some(fault.to_string());
                self.note(("create", "missing"), count as usize, 0, problem);
            }
        }
    }

    /// Writes a launch into the journal; returns whether that is certain.
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
            Err(error) => self.note_failure(why, intent, &error),
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
                let problem = (came < asked).then(|| format!("{}{}", Fault::NoCapacity, words()));
                if came == 0 {
                    let until = self.stack.now().after(self.stack.limits.shortage_memory);
                    self.found.journal.short_until = Some(until);
                }
                self.note(("create", why), asked, came, problem);
            }
            Err(error) => self.note_failure(why, intent, &error),
        }
    }

    fn note_failure(&mut self, why: &str, intent: &Intent, error: &CreationError) {
        if error.is_final() {
            let until = self.stack.now().after(self.stack.limits.shortage_memory);
            self.found.journal.short_until = Some(until);
        }
        let problem = match error {
            CreationError::Port { what, source } => format!("could not {what}: {source}"),
            CreationError::Ceiling(reached) => reached.to_string(),
        };
        self.note(("create", why), intent.outstanding as usize, 0, Some(problem));
    }
}
