//! The model of a demand source: announced jobs that are not settled.
//!
//! A *weak* source hands out some jobs late, some twice, and all in any order.
//!
//! Not here: losing a job before it is announced.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bullpen_core::ids::JobId;
use bullpen_core::ports::{Demand, DemandSource, Fault};

use super::locked;
use crate::dice::Dice;
use crate::wire::Wire;

/// All demands that were announced and not settled.
#[derive(Debug, Default)]
struct DemandState {
    open: BTreeMap<JobId, Demand>,
    weak: bool,
}

impl DemandState {
    fn demands(&self, max: usize, dice: &Dice) -> Vec<Demand> {
        let mut open: Vec<&Demand> = self.open.values().collect();
        open.sort_by_key(|demand| demand.queued_at);
        if self.weak && !open.is_empty() {
            // In any order, some late, one perhaps twice.
            open.sort_by_cached_key(|_| dice.any());
            open.retain(|_| !dice.chance(300));
            if let Some(again) = dice.pick(&open).copied() {
                open.push(again);
            }
        }
        open.into_iter().take(max).cloned().collect()
    }
}

/// One process's handle on a world's source of demands.
#[derive(Clone, Debug)]
pub struct DemandModel {
    state: Arc<Mutex<DemandState>>,
    wire: Wire,
}

impl DemandModel {
    /// A new world's source, with no jobs.
    pub fn new(wire: Wire) -> Self {
        Self { state: Arc::default(), wire }
    }

    /// A new world's source that hands demands out late, twice and in any order.
    pub fn weak(wire: Wire) -> Self {
        let model = Self::new(wire);
        locked(&model.state).weak = true;
        model
    }

    /// Another process's handle on the same source.
    #[must_use]
    pub fn for_process(&self, wire: Wire) -> Self {
        Self { state: Arc::clone(&self.state), wire }
    }

    /// Announces a job that is queued at the source.
    pub fn announce(&self, demand: Demand) {
        locked(&self.state).open.insert(demand.job.clone(), demand);
    }
}

impl DemandSource for DemandModel {
    async fn demands(&self, max: usize) -> Result<Vec<Demand>, Fault> {
        let (state, wire) = (Arc::clone(&self.state), self.wire.clone());
        self.wire
            .call("demand", move || locked(&state).demands(max, wire.dice()))
            .await
            .or_unavailable()
    }

    async fn settle(&self, jobs: &[JobId]) -> Result<(), Fault> {
        let (state, jobs) = (Arc::clone(&self.state), jobs.to_vec());
        let settle = move || {
            let mut state = locked(&state);
            for job in &jobs {
                state.open.remove(job);
            }
        };
        self.wire.call("demand", settle).await.or_unavailable()
    }
}
