//! Whose job is next: repositories take turns, so that the burst of one starves nobody.
//!
//! A *turn* goes around the repositories that wait, in the order of their names, from after the one
//! that was served last. Each visit takes as many jobs as its weight, its cap and the room allow.
//! Where the last turn ended is the caller's to keep in memory: losing it costs a place in the
//! order and nothing else.
//!
//! Not here: loading what waits, or what a repository's weight and cap are.

use crate::ids::{JobId, Repository};

/// What waits of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Whose.
    pub repository: Repository,
    /// Its jobs, those to be served first in front.
    pub jobs: Vec<JobId>,
    /// How many of its jobs one visit takes, at least one.
    pub weight: u32,
    /// How many more it may have at once.
    pub free: u32,
}

/// Who was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The jobs, in the order they are to be served.
    pub chosen: Vec<JobId>,
    /// Who was served last; the next turn begins after it.
    pub last: Option<Repository>,
}

/// Chooses at most `room` jobs.
pub fn choose(queues: &[Queue], room: usize, last: Option<&Repository>) -> Turn {
    let mut order: Vec<&Queue> = queues.iter().collect();
    // Those after the last one first, then the others from the beginning.
    order.sort_by_key(|queue| {
        (last.is_some_and(|last| queue.repository <= *last), &queue.repository)
    });
    let mut taken = vec![0_usize; order.len()];
    let mut turn = Turn { chosen: Vec::new(), last: last.cloned() };
    loop {
        let before = turn.chosen.len();
        for (queue, taken) in order.iter().zip(&mut taken) {
            let most = queue.jobs.len().min(usize::try_from(queue.free).unwrap_or(usize::MAX));
            let weight = usize::try_from(queue.weight.max(1)).unwrap_or(usize::MAX);
            let left = most.saturating_sub(*taken);
            let visit = weight.min(left).min(room - turn.chosen.len());
            if visit > 0 {
                turn.chosen.extend(queue.jobs[*taken..*taken + visit].iter().cloned());
                turn.last = Some(queue.repository.clone());
                *taken += visit;
            }
        }
        if turn.chosen.len() == before {
            return turn;
        }
    }
}
