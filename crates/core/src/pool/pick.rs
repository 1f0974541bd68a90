//! Which idle machine of a pool each job gets: released before hot before stopped, and of a tier
//! the machine that has been ready longest.
//!
//! A used machine serves only its trust group, and of that group only jobs that may have a used
//! machine (`job::origin`). The spec hash does not matter here: the rollout decides how long old
//! machines stand by, and until then they serve jobs.
//!
//! Not here: claiming (`claim`; two workers that pick at once may pick the same machine), starting,
//! or which jobs come first (`job::fair`).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ids::{InstanceId, JobId, TrustGroup};
use crate::instance::{Record, State, Tier};
use crate::job::OnlyUnused;
use crate::limits::Limits;
use crate::time::Timestamp;

/// A job that wants a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingJob {
    /// Which job.
    pub job: JobId,
    /// The trust group of its code.
    pub trust: TrustGroup,
    /// Why it gets only unused machines, if it does.
    pub only_unused: Option<OnlyUnused>,
}

/// A machine for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickedMachine<'r> {
    /// Which job.
    pub job: JobId,
    /// Which machine.
    pub record: &'r Record,
    /// Its tier: the worker must start a stopped machine.
    pub tier: Tier,
}

/// A machine's place in the line: its tier, since when it is ready, and its id.
type Place<'r> = (Tier, Timestamp, &'r InstanceId);

/// Maps jobs, in their order, to idle machines. A job that is absent from the answer found none.
pub fn pick<'r>(
    records: &'r [Record],
    jobs: &[WaitingJob],
    limits: &Limits,
    now: Timestamp,
) -> Vec<PickedMachine<'r>> {
    let mut line = in_line(records, limits, now);
    let mut picked = Vec::new();
    for WaitingJob { job, trust, only_unused } in jobs {
        let first = |key| line.get(&key)?.last().map(|(place, _)| (place.0, key));
        let kinds = [(false, None), (false, Some(trust)), (true, None), (true, Some(trust))];
        let may = kinds.into_iter().filter(|(is_used, _)| !is_used || only_unused.is_none());
        let nearest = may.filter_map(first).min();
        let Some((place, key)) = nearest else { continue };
        let Some((_, record)) = line.get_mut(&key).and_then(Vec::pop) else { continue };
        picked.push(PickedMachine { job: job.clone(), record, tier: place.0 });
    }
    picked
}

/// How many used machines fit the job, if it may have only unused ones.
pub(super) fn withheld(
    records: &[Record],
    seeker: &WaitingJob,
    limits: &Limits,
    now: Timestamp,
) -> usize {
    let line = in_line(records, limits, now);
    let used = [(true, None), (true, Some(&seeker.trust))];
    let used = used.iter().filter(|_| seeker.only_unused.is_some());
    used.filter_map(|kind| line.get(kind)).map(Vec::len).sum()
}

/// Whether a machine is used, and the trust group that used it.
type Kind<'r> = (bool, Option<&'r TrustGroup>);

/// Idle machines by the trust group that used them, the first in line at the end.
fn in_line<'r>(
    records: &'r [Record],
    limits: &Limits,
    now: Timestamp,
) -> BTreeMap<Kind<'r>, Vec<(Reverse<Place<'r>>, &'r Record)>> {
    let mut line: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let claimable_past = now.after(limits.not_claimable_before_deadline);
    for record in records {
        match record.state {
            State::Idle { tier, since, deadline, .. }
                if claimable_past < deadline && !record.tainted =>
            {
                let place = Reverse((tier, since, &record.id));
                let kind = (tier.is_used(), record.trust.as_ref());
                line.entry(kind).or_default().push((place, record));
            }
            _ => {}
        }
    }
    for machines in line.values_mut() {
        machines.sort_by_key(|(place, _)| *place);
    }
    line
}
