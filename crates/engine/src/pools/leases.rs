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
use futures_util::future::join_all;

use crate::Stack;

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

    /// Takes the leases that it can get, and returns the pools whose lease this process holds.
    pub async fn hold<P: Ports>(&self, stack: &Stack<P>, pools: &[PoolName]) -> Vec<PoolName> {
        let held = pools.iter().map(async |pool| self.hold_named(stack, &name(pool)).await);
        let held = join_all(held).await;
        pools.iter().zip(held).filter(|(_, held)| *held).map(|(pool, _)| pool.clone()).collect()
    }

    /// Takes this lease if it can get it, and returns whether this process holds it.
    pub(crate) async fn hold_named<P: Ports>(&self, stack: &Stack<P>, lease: &LeaseName) -> bool {
        if self.held_token(stack, lease).is_some() {
            return true;
        }
        self.take(stack, lease).await.unwrap_or_else(|fault| {
            tracing::info!(%lease, %fault, "could not take lease");
            false
        })
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
            let held = self.held();
            join_all(held.iter().map(async |lease| {
                let renewed = self.write(stack, Some(lease), &lease.renewed()).await;
                if !matches!(renewed, Ok(true)) {
                    tracing::info!(lease = %lease.name, ?renewed, "could not renew lease");
                }
            }))
            .await;
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
        let held = self.held().into_iter().filter(|lease| names.contains(&lease.name));
        join_all(held.map(async |lease| {
            self.leases().remove(&lease.name);
            let given_up = stack.ports.ledger().write_lease(Some(&lease), &lease.given_up()).await;
            tracing::info!(lease = %lease.name, ?given_up, "gave up lease of pool with unreadable journal");
        }))
        .await;
    }

    /// Gives up the held leases, so that other processes need not wait for their end. If this
    /// fails, they wait.
    pub async fn give_up<P: Ports>(&self, stack: &Stack<P>) {
        let held = self.held();
        self.leases().clear();
        let ledger = stack.ports.ledger();
        join_all(held.iter().map(async |lease| {
            let _ = ledger.write_lease(Some(lease), &lease.given_up()).await;
        }))
        .await;
    }
}

fn name(pool: &PoolName) -> LeaseName {
    LeaseName::new(format!("pool/{pool}"))
}
