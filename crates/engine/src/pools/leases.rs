//! Leases: one process at a time keeps a pool, and one searches GitHub.
//!
//! A process takes another's lease to be over if its revision has not changed for the lease's
//! length on the process's own monotonic clock. A lease keeps processes out of each other's way and
//! gives each holder a token; conditional writes keep the machines safe.
//!
//! Not here: the cycles that run under a lease ([`super`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{FencingToken, HolderId, LeaseName, PoolName};
use bullpen_core::lease::{Lease, LeaseWatch};
use bullpen_core::ports::{Clock, Fault, Ids, Ledger, Ports, Written};
use bullpen_core::sabotage;

use crate::Stack;
use crate::at_once::at_once;

/// What this process knows of one lease.
#[derive(Debug, Default)]
struct LeaseState {
    watch: LeaseWatch,
    /// The lease, if this process holds it, and when that was last certain.
    held: Option<(Lease, Duration)>,
}

/// The leases of one process.
#[derive(Debug)]
pub struct Leases {
    holder: HolderId,
    leases: Mutex<BTreeMap<LeaseName, LeaseState>>,
}

impl Leases {
    /// Holds no lease yet.
    pub fn new<P: Ports>(stack: &Stack<P>) -> Self {
        Self { holder: stack.ports.ids().holder(), leases: Mutex::default() }
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<LeaseName, LeaseState>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of this pool's lease, while this process certainly holds it.
    pub(super) fn token<P: Ports>(
        &self,
        stack: &Stack<P>,
        pool: &PoolName,
    ) -> Option<FencingToken> {
        self.held_token(stack, &name(pool))
    }

    fn held_token<P: Ports>(&self, stack: &Stack<P>, name: &LeaseName) -> Option<FencingToken> {
        let leases = self.leases();
        let (lease, since) = leases.get(name)?.held.as_ref()?;
        let age = stack.ports.clock().monotonic().saturating_sub(*since);
        (age < stack.limits.pool_lease).then_some(lease.token)
    }

    /// Takes the leases that it can get, and returns the pools whose lease this process holds, in the
    /// order of their names.
    pub async fn hold<P: Ports>(&self, stack: &Stack<P>, pools: &[PoolName]) -> Vec<PoolName> {
        let answers =
            at_once(pools, async |pool: &PoolName| (pool, self.hold_one(stack, &name(pool)).await));
        let (mut held, mut failed) = (Vec::new(), Vec::new());
        for (pool, answer) in answers.await {
            match answer {
                Ok(true) => held.push(pool.clone()),
                Ok(false) => {}
                Err(fault) => failed.push(fault),
            }
        }
        if let Some(fault) = failed.first() {
            tracing::info!(leases = failed.len(), %fault, "could not take leases of pools");
        }
        held.sort();
        held
    }

    /// Those of these pools whose lease this process certainly holds.
    pub(super) fn held_among<P: Ports>(
        &self,
        stack: &Stack<P>,
        pools: &BTreeSet<PoolName>,
    ) -> Vec<PoolName> {
        pools.iter().filter(|pool| self.token(stack, pool).is_some()).cloned().collect()
    }

    /// Takes this lease if it can get it, and returns whether this process holds it.
    pub(crate) async fn hold_named<P: Ports>(&self, stack: &Stack<P>, lease: &LeaseName) -> bool {
        self.hold_one(stack, lease).await.unwrap_or_else(|fault| {
            tracing::info!(%lease, %fault, "could not take lease");
            false
        })
    }

    async fn hold_one<P: Ports>(&self, stack: &Stack<P>, lease: &LeaseName) -> Result<bool, Fault> {
        if self.held_token(stack, lease).is_some() {
            return Ok(true);
        }
        self.take(stack, lease).await
    }

    /// Takes a lease that is free or over, or that the ledger shows as this process's own because
    /// the answer to an earlier write was lost.
    async fn take<P: Ports>(&self, stack: &Stack<P>, name: &LeaseName) -> Result<bool, Fault> {
        let stored = stack.ports.ledger().lease(name).await?;
        let next = match &stored {
            None => Lease::first(name.clone(), self.holder.clone()),
            Some(lease) => {
                let mono = stack.ports.clock().monotonic();
                let mut leases = self.leases();
                let watch = &mut leases.entry(name.clone()).or_default().watch;
                let is_over = watch.expired(lease, mono, stack.limits.pool_lease);
                let is_others = lease.holder != self.holder && !sabotage!("leases-are-taken");
                if !is_over && !lease.is_free() && is_others {
                    return Ok(false);
                }
                lease.taken_by(self.holder.clone())
            }
        };
        self.write(stack, stored.as_ref(), &next).await
    }

    async fn write<P: Ports>(
        &self,
        stack: &Stack<P>,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> Result<bool, Fault> {
        // Counted from before the write: other processes count from when they see it.
        let since = stack.ports.clock().monotonic();
        let written = stack.ports.ledger().write_lease(seen, next).await?;
        let mut leases = self.leases();
        let lease_state = leases.entry(next.name.clone()).or_default();
        match written {
            Written::Won(lease) => lease_state.held = Some((lease, since)),
            Written::Lost => lease_state.held = None,
            // The next renewal settles it before the lease is over.
            Written::Unknown => {}
        }
        Ok(lease_state.held.is_some())
    }

    /// Renews the held leases, for ever.
    pub(crate) async fn renew<P: Ports>(&self, stack: &Stack<P>) {
        loop {
            stack.ports.clock().sleep(stack.limits.pool_lease_renew).await;
            let renewed = at_once(self.held(), async |lease: Lease| {
                let renewed = self.write(stack, Some(&lease), &lease.renewed()).await;
                (lease.name, renewed)
            });
            let mut failed = renewed.await;
            failed.retain(|(_, renewed)| !matches!(renewed, Ok(true)));
            if let Some((lease, renewed)) = failed.first() {
                let leases = failed.len();
                tracing::info!(leases, first = %lease, ?renewed, "could not renew leases");
            }
        }
    }

    fn held(&self) -> Vec<Lease> {
        let leases = self.leases();
        let held = leases.values().filter_map(|lease_state| lease_state.held.as_ref());
        held.map(|(lease, _)| lease.clone()).collect()
    }

    /// Gives up the leases of these pools, so that other processes keep them at once.
    pub(super) async fn let_go<P: Ports>(&self, stack: &Stack<P>, pools: &BTreeSet<PoolName>) {
        if sabotage!("a-lease-is-kept-without-its-work") {
            return;
        }
        let names: BTreeSet<LeaseName> = pools.iter().map(name).collect();
        let mut held = self.held();
        held.retain(|lease| names.contains(&lease.name));
        if let Some(first) = held.first() {
            let (leases, first) = (held.len(), &first.name);
            tracing::info!(leases, %first, "gives up leases of pools with unreadable journals");
        }
        self.give_back(stack, held).await;
    }

    /// Gives up the held leases, so that other processes need not wait for their end. If this
    /// fails, they wait.
    pub async fn give_up<P: Ports>(&self, stack: &Stack<P>) {
        let held = self.held();
        self.leases().clear();
        self.give_back(stack, held).await;
    }

    async fn give_back<P: Ports>(&self, stack: &Stack<P>, held: Vec<Lease>) {
        at_once(held, async |lease: Lease| {
            self.leases().remove(&lease.name);
            let _ = stack.ports.ledger().write_lease(Some(&lease), &lease.given_up()).await;
        })
        .await;
    }
}

fn name(pool: &PoolName) -> LeaseName {
    LeaseName::new(format!("pool/{pool}"))
}
