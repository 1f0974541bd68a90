//! Leases: one process at a time keeps a pool.
//!
//! Whether somebody else's lease is over is judged by its unchanged revision on this process's own
//! monotonic clock. A lease keeps processes out of each other's way and gives each holder a token;
//! what keeps a machine safe are the conditional writes.
//!
//! Not here: what is done under one ([`super`]).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bullpen_core::ids::{FencingToken, HolderId, LeaseName, PoolName};
use bullpen_core::lease::{Lease, LeaseWatch};
use bullpen_core::ports::{Clock, Fault, Ids, Ledger, Ports, Written};
use bullpen_core::sabotage;
use futures_util::future::join_all;

use crate::Stack;

/// What one process knows of one pool's lease.
#[derive(Debug, Default)]
struct Tenure {
    watch: LeaseWatch,
    /// The lease, if it is ours, and when that was last certain.
    held: Option<(Lease, Duration)>,
}

/// The leases of one process.
#[derive(Debug)]
pub struct Leases {
    holder: HolderId,
    tenures: Mutex<BTreeMap<PoolName, Tenure>>,
}

impl Leases {
    /// None yet.
    pub fn new<P: Ports>(stack: &Stack<P>) -> Self {
        Self { holder: stack.ports.ids().holder(), tenures: Mutex::default() }
    }

    fn tenures(&self) -> MutexGuard<'_, BTreeMap<PoolName, Tenure>> {
        self.tenures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token of this pool's lease, while it is certainly ours.
    pub(super) fn token<P: Ports>(
        &self,
        stack: &Stack<P>,
        pool: &PoolName,
    ) -> Option<FencingToken> {
        let tenures = self.tenures();
        let (lease, since) = tenures.get(pool)?.held.as_ref()?;
        let age = stack.ports.clock().monotonic().saturating_sub(*since);
        (age < stack.limits.pool_lease).then_some(lease.token)
    }

    /// Those of the pools that are ours, taken now or before.
    pub async fn hold<P: Ports>(&self, stack: &Stack<P>, pools: &[PoolName]) -> Vec<PoolName> {
        let held = join_all(pools.iter().map(async |pool| {
            if self.token(stack, pool).is_some() {
                return true;
            }
            self.take(stack, pool).await.unwrap_or_else(|fault| {
                tracing::info!(%pool, %fault, "could not look at its lease");
                false
            })
        }));
        let held = held.await;
        pools.iter().zip(held).filter(|(_, held)| *held).map(|(pool, _)| pool.clone()).collect()
    }

    /// Takes a lease that nobody has any more. One whose answer was lost is ours when we see it.
    async fn take<P: Ports>(&self, stack: &Stack<P>, pool: &PoolName) -> Result<bool, Fault> {
        let (ledger, name) = (stack.ports.ledger(), name(pool));
        let stored = ledger.lease(&name).await?;
        let next = match &stored {
            None => Lease::first(name, self.holder.clone()),
            Some(lease) => {
                let mono = stack.ports.clock().monotonic();
                let mut tenures = self.tenures();
                let watch = &mut tenures.entry(pool.clone()).or_default().watch;
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
        // Counted from before the write: others count from when they saw it.
        let since = stack.ports.clock().monotonic();
        let written = stack.ports.ledger().write_lease(seen, next).await?;
        let mut tenures = self.tenures();
        let tenure = tenures.entry(pool.clone()).or_default();
        match written {
            Written::Won(lease) => tenure.held = Some((lease, since)),
            Written::Lost => tenure.held = None,
            // Looked at again before it is over.
            Written::Unknown => {}
        }
        Ok(tenure.held.is_some())
    }

    /// Renews what is held, for ever.
    pub(super) async fn renew<P: Ports>(&self, stack: &Stack<P>) {
        loop {
            stack.ports.clock().sleep(stack.limits.pool_lease_renew).await;
            let held: Vec<(PoolName, Lease)> = self.held();
            join_all(held.iter().map(async |(pool, lease)| {
                let renewed = self.write(stack, pool, Some(lease), &lease.renewed()).await;
                if !matches!(renewed, Ok(true)) {
                    tracing::info!(%pool, ?renewed, "its lease was not renewed");
                }
            }))
            .await;
        }
    }

    fn held(&self) -> Vec<(PoolName, Lease)> {
        let tenures = self.tenures();
        let held = tenures.iter().filter_map(|(pool, tenure)| {
            let (lease, _) = tenure.held.as_ref()?;
            Some((pool.clone(), lease.clone()))
        });
        held.collect()
    }

    /// Gives up what is held, so that nobody has to wait for its end. If this does not land, they do.
    pub async fn give_up<P: Ports>(&self, stack: &Stack<P>) {
        let held = self.held();
        self.tenures().clear();
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
