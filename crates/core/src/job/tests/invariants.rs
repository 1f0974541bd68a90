//! That the checks over jobs, machines and runners report what is broken, and only that.
//!
//! Not here: the checks (`invariants::jobs`).

use super::*;
use crate::instance::Record;
use crate::invariants::jobs::{JobsSnapshot, on_jobs};
use crate::parameters::OfflineRunners;
use crate::ports::{Machine, MachineState, Runner};
use crate::samples::{job_owner, machine, record, request_owner, running};

/// Longer than the grace after noon.
const LATE: u64 = 3_600;

#[derive(Default)]
struct World {
    records: Vec<Record>,
    jobs: Vec<Job>,
    machines: Vec<Machine>,
    runners: Option<Vec<Runner>>,
    offline: OfflineRunners,
}

impl World {
    /// What it breaks this long after noon.
    fn breaks(&self, seconds: u64) -> Vec<String> {
        let seen = JobsSnapshot {
            stack: "bp",
            now: at(seconds),
            records: &self.records,
            jobs: &self.jobs,
            machines: &self.machines,
            runners: self.runners.as_deref(),
            offline: &self.offline,
            limits: &LIMITS,
        };
        on_jobs(&seen).iter().map(ToString::to_string).collect()
    }
}

fn runner(name: &str, online: bool) -> Runner {
    Runner { name: RunnerName::new(name), online, busy: false }
}

#[test]
fn a_job_past_its_deadline_is_noticed_after_the_grace() {
    let world = World { jobs: vec![waiting()], ..World::default() };
    let JobState::Waiting { deadline, .. } = world.jobs[0].state else { panic!("it waits") };
    let over = deadline.since(at(0)).as_secs() + LIMITS.reconcile_grace.as_secs();
    assert_eq!(world.breaks(over), Vec::<String>::new());
    let said = world.breaks(over + 1);
    assert!(said[0].starts_with("invariant 1 (EveryJobEnds): job 4242 of acme/app"), "{said:?}");
}

#[test]
fn two_jobs_with_one_machine_are_noticed_at_once() {
    let other = Job { id: JobId::new("4343"), ..assigned() };
    let world = World { jobs: vec![assigned(), other], ..World::default() };
    assert_eq!(
        world.breaks(101),
        ["invariant 3 (OneOwner) on i-1: jobs 4242 and 4343 both have it"]
    );
}

#[test]
fn a_machine_must_belong_to_a_job_that_knows_it() {
    let records = vec![record(running(job_owner()))];
    let known = World { records: records.clone(), jobs: vec![assigned()], ..World::default() };
    assert_eq!(known.breaks(LATE), Vec::<String>::new());
    let none = World { records: records.clone(), ..World::default() };
    assert_eq!(none.breaks(60), Vec::<String>::new(), "its row may not be read yet");
    assert!(none.breaks(LATE)[0].contains("there is no row"));
    let unknown = World { records, jobs: vec![assigning()], ..World::default() };
    assert!(unknown.breaks(LATE)[0].contains("whose row does not name it"));
}

#[test]
fn a_machine_that_was_stopped_under_its_owner_is_noticed() {
    for (state, wrong) in [(MachineState::Running, 0), (MachineState::Stopped, 1)] {
        let world = World {
            records: vec![record(running(request_owner()))],
            machines: vec![Machine { state, ..machine("i-1") }],
            ..World::default()
        };
        assert_eq!(world.breaks(LATE).len(), wrong, "{state:?}");
    }
}

/// Without GitHub's list nothing is said about runners.
#[test]
fn machines_and_runners_belong_together() {
    let running = record(running(request_owner()));
    let own = crate::tenure::runner_name("bp", &running.id, running.generation);
    let world = |records: &[&Record], runners: Option<Vec<Runner>>| World {
        records: records.iter().copied().cloned().collect(),
        runners,
        ..World::default()
    };
    assert_eq!(world(&[&running], None).breaks(LATE), Vec::<String>::new());
    let both = world(&[&running], Some(vec![runner(own.as_str(), true)]));
    assert_eq!(both.breaks(LATE), Vec::<String>::new());
    let missing = world(&[&running], Some(vec![])).breaks(LATE);
    assert!(missing[0].contains("GitHub has no runner"), "{missing:?}");
    let mut ghost = world(&[], Some(vec![runner("bp-9-0", false)]));
    assert_eq!(ghost.breaks(LATE), Vec::<String>::new(), "no sweep has noticed it");
    ghost.offline.since.insert(RunnerName::new("bp-9-0"), at(0));
    assert_eq!(ghost.breaks(600), Vec::<String>::new(), "a sweep will remove it");
    let found = ghost.breaks(LATE);
    assert!(found[0].contains("belongs to no machine, and is not removed"), "{found:?}");
}
