//! Leases: one process at a time keeps a pool.
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

/// What this process knows of one pool's lease.
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
    leases: Mutex<BTreeMap<PoolName, LeaseState>>,
}

impl Leases {
    /// Holds no lease yet.
    pub fn new<P: Ports>(stack: &Stack<P>) -> Self {
        Self { holder: stack.ports.ids().holder(), leases: Mutex::default() }
    }

    fn leases(&self) -> MutexGuard<'_, BTreeMap<PoolName, LeaseState>> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of this pool's lease, while this process certainly holds it.
    pub(super) fn token<P: Ports>(
        &self,
        stack: &Stack<P>,
        pool: &PoolName,
    ) -> Option<FencingToken> {
        let leases = self.leases();
        let (lease, since) = leases.get(pool)?.held.as_ref()?;
        let age = stack.ports.clock().monotonic().saturating_sub(*since);
        (age < stack.limits.pool_lease).then_some(lease.token)
    }

    /// Takes the leases that it can get, and returns the pools whose lease this process holds.
    pub async fn hold<P: Ports>(&self, stack: &Stack<P>, pools: &[PoolName]) -> Vec<PoolName> {
        let held = join_all(pools.iter().map(async |pool| {
            if self.token(stack, pool).is_some() {
                return true;
            }
            self.take(stack, pool).await.unwrap_or_else(|fault| {
                tracing::info!(%pool, %fault, "could not take pool lease");
                false
            })
        }));
        let held = held.await;
        pools.iter().zip(held).filter(|(_, held)| *held).map(|(pool, _)| pool.clone()).collect()
    }

    /// Takes a lease that is free or over, or that the ledger shows as this process's own because
    /// the answer to an earlier write was lost.
    async fn take<P: Ports>(&self, stack: &Stack<P>, pool: &PoolName) -> Result<bool, Fault> {
        let (ledger, name) = (stack.ports.ledger(), name(pool));
        let stored = ledger.lease(&name).await?;
        let next = match &stored {
            None => Lease::first(name, self.holder.clone()),
            Some(lease) => {
                let mono = stack.ports.clock().monotonic();
                let mut leases = self.leases();
                let watch = &mut leases.entry(pool.clone()).or_default().watch;
                let is_over = watch.expired(lease, mono, stack.limits.pool_lease);
                let is_others = lease.holder != self.holder && !sabotage!("leases-are-taken");
                if !is_over && !lease.is_free() && is_others {
                    return Ok(false);
                }
                lease.taken_by(self.holder.clone())
            }
        };
        self.write(stack, pool, stored.as_ref(), &next).await
    }

    async fn write<P: Ports>(
        &self,
        stack: &Stack<P>,
        pool: &PoolName,
        seen: Option<&Lease>,
        next: &Lease,
    ) -> Result<bool, Fault> {
        // Counted from before the write: other processes count from when they see it.
        let since = stack.ports.clock().monotonic();
        let written = stack.ports.ledger().write_lease(seen, next).await?;
        let mut leases = self.leases();
        let lease_state = leases.entry(pool.clone()).or_default();
        match written {
            Written::Won(lease) => lease_state.held = Some((lease, since)),
            Written::Lost => lease_state.held = None,
            // The next renewal settles it before the lease is over.
            Written::Unknown => {}
        }
        Ok(lease_state.held.is_some())
    }

    /// Renews the held leases, for ever.
    pub(super) async fn renew<P: Ports>(&self, stack: &Stack<P>) {
        loop {
            stack.ports.clock().sleep(stack.limits.pool_lease_renew).await;
            let held: Vec<(PoolName, Lease)> = self.held();
            join_all(held.iter().map(async |(pool, lease)| {
                let renewed = self.write(stack, pool, Some(lease), &lease.renewed()).await;
                if !matches!(renewed, Ok(true)) {
                    tracing::info!(%pool, ?renewed, "could not renew pool lease");
                }
            }))
            .await;
        }
    }

    fn held(&self) -> Vec<(PoolName, Lease)> {
        let leases = self.leases();
        let held = leases.iter().filter_map(|(pool, lease_state)| {
            let (lease, _) = lease_state.held.as_ref()?;
            Some((pool.clone(), lease.clone()))
        });
        held.collect()
    }

    /// Gives up the leases of these pools, so that other processes keep them at once.
    pub(super) async fn let_go<P: Ports>(&self, stack: &Stack<P>, pools: &BTreeSet<PoolName>) {
        if sabotage!("a-lease-is-kept-without-its-work") {
            return;
        }
        let held = self.held().into_iter().filter(|(pool, _)| pools.contains(pool));
        join_all(held.map(async |(pool, lease)| {
            self.leases().remove(&pool);
            let given_up = stack.ports.ledger().write_lease(Some(&lease), &lease.given_up()).await;
            tracing::info!(%pool, ?given_up, "gave up lease of pool with unreadable journal");
        }))
        .await;
    }

    /// Gives up the held leases, so that other processes need not wait for their end. If this
    /// fails, they wait.
    pub async fn give_up<P: Ports>(&self, stack: &Stack<P>) {
        let held = self.held();
        self.leases().clear();
        let ledger = stack.ports.ledger();
        join_all(held.iter().map(async |(_, lease)| {
            let _ = ledger.write_lease(Some(lease), &lease.given_up()).await;
        }))
        .await;
    }
}

fn name(pool: &PoolName) -> LeaseName {
    LeaseName::new(format!("pool/{pool}"))
}
