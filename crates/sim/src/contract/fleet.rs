//! What the `Fleet` port promises.
//!
//! Machines are visible late and states lag, so cases look again until they see what must come, and
//! give up after [`PATIENCE`].
//!
//! Not here: which machines a launch chooses, or how long anything takes.

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, IntentId, PoolName, StopOp};
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Fleet, Machine, MachineState, StartOutcome, StopOrder, Tag, Tags};

use super::{Harness, answered};

/// One test per case of the fleet's contract.
#[macro_export]
macro_rules! fleet_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            fleet,
            [
                a_launch_brings_what_was_asked_for,
                a_launch_is_made_once_per_intent,
                a_launch_whose_answer_was_lost_is_made_once,
                a_launch_may_bring_less_and_never_more,
                machines_are_listed_with_their_tags,
                describing_leaves_out_what_is_not_there,
                a_machine_runs_stops_and_starts_again,
                starting_answers_for_each_machine,
                ending_is_final_and_can_be_asked_twice,
                ending_what_is_unknown_is_no_error,
                tags_are_shown_and_the_last_one_counts,
                a_machine_keeps_its_tags_while_it_is_stopped,
                tagging_what_is_unknown_is_no_error,
            ]
        );
    };
}

/// How long a case waits for a machine to change its state.
pub const PATIENCE: Duration = Duration::from_secs(600);
const LOOKS: u32 = 120;

/// A harness that knows what its fleet can launch.
pub trait FleetHarness: Harness<Port: Fleet> {
    /// Whether a launch's answer says when its machines were launched. Where the cloud does not say, the
    /// adapter's own time stands in for it until the machines are described.
    const TELLS_LAUNCH_TIME: bool = true;

    /// A request for this many machines that the fleet can fulfil.
    fn request(&self, intent: &IntentId, pool: Option<PoolName>, count: u32) -> LaunchRequest;
    /// Lever: from now on there is room for this many machines more; false if that cannot be
    /// arranged here.
    fn leave_room_for(&self, machines: u32) -> bool;
}

async fn launch<H: FleetHarness>(harness: &H, intent: &str, count: u32) -> Vec<Machine> {
    let request = harness.request(&IntentId::new(intent), None, count);
    let launched = answered(harness.port().launch(&request).await);
    assert_eq!(launched.machines.len(), usize::try_from(count).unwrap_or(0), "{launched:?}");
    launched.machines
}

fn ids(machines: &[Machine]) -> BTreeSet<InstanceId> {
    machines.iter().map(|machine| machine.id.clone()).collect()
}

/// The state of a machine once it is one of these; what is absent from the answer is gone.
async fn until<H: FleetHarness>(harness: &H, id: &InstanceId, wanted: MachineState) {
    for _ in 0..LOOKS {
        let seen = answered(harness.port().describe(std::slice::from_ref(id)).await);
        match seen.first().map(|machine| machine.state) {
            Some(state) if state == wanted => return,
            None if wanted == MachineState::Gone => return,
            Some(_) | None => harness.pass(PATIENCE / LOOKS).await,
        }
    }
    panic!("{id} was not {wanted:?} within {PATIENCE:?}");
}

/// All machines that are listed and not gone, once listings have caught up.
async fn listed<H: FleetHarness>(harness: &H) -> Vec<Machine> {
    harness.settle().await;
    let mut machines = answered(harness.port().list().await);
    machines.retain(|machine| machine.state != MachineState::Gone);
    machines
}

/// As many machines as asked for, each with its own id.
pub async fn a_launch_brings_what_was_asked_for<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 3).await;
    assert_eq!(ids(&machines).len(), 3);
    for machine in &machines {
        assert_eq!(machine.intent, IntentId::new("intent-1"));
        assert!(matches!(machine.state, MachineState::Pending | MachineState::Running));
        until(&harness, &machine.id, MachineState::Running).await;
    }
}

/// The same request again is the same launch; another intent is another.
pub async fn a_launch_is_made_once_per_intent<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 2).await;
    let request = harness.request(&IntentId::new("intent-1"), None, 2);
    for _ in 0..3 {
        let again = answered(harness.another_process().launch(&request).await);
        assert_eq!(ids(&again.machines), ids(&machines));
    }
    let others = launch(&harness, "intent-2", 1).await;
    assert!(ids(&others).is_disjoint(&ids(&machines)));
    assert_eq!(listed(&harness).await.len(), 3);
}

/// A launch that landed without an answer is found by making it again.
pub async fn a_launch_whose_answer_was_lost_is_made_once<H: FleetHarness>(harness: H) {
    let request = harness.request(&IntentId::new("intent-1"), None, 2);
    let answer_lost = harness.lose_next_answer();
    let first = harness.port().launch(&request).await;
    assert_eq!(first.is_err(), answer_lost, "{first:?}");
    let again = answered(harness.port().launch(&request).await);
    assert_eq!(again.machines.len(), 2);
    assert_eq!(ids(&listed(&harness).await), ids(&again.machines));
}

/// With room for fewer, fewer come, and the same request again brings none anew.
pub async fn a_launch_may_bring_less_and_never_more<H: FleetHarness>(harness: H) {
    if !harness.leave_room_for(2) {
        return;
    }
    let request = harness.request(&IntentId::new("intent-1"), None, 5);
    let launched = answered(harness.port().launch(&request).await);
    assert_eq!(launched.machines.len(), 2, "{launched:?}");
    harness.leave_room_for(100);
    let again = answered(harness.port().launch(&request).await);
    assert_eq!(ids(&again.machines), ids(&launched.machines));
    assert_eq!(listed(&harness).await.len(), 2);
}

/// Listings show every machine with what it was launched with.
pub async fn machines_are_listed_with_their_tags<H: FleetHarness>(harness: H) {
    let pool = PoolName::new("linux");
    let request = harness.request(&IntentId::new("intent-1"), Some(pool.clone()), 1);
    let launched = answered(harness.port().launch(&request).await).machines;
    launch(&harness, "intent-2", 2).await;
    let machines = listed(&harness).await;
    assert_eq!(machines.len(), 3);
    let mine = machines.iter().find(|machine| machine.id == launched[0].id).expect("it is listed");
    assert_eq!((&mine.intent, &mine.pool), (&request.intent, &Some(pool)));
    assert_eq!((&mine.class, mine.usage), (&request.class.name, request.usage));
    assert!(request.class.vcpu.contains(mine.vcpu), "{mine:?}");
    assert!(mine.memory_mib >= request.class.memory_mib_min, "{mine:?}");
    assert_eq!(mine.architecture, request.class.architecture);
    let mailboxes: BTreeSet<_> = machines.iter().map(|machine| &machine.mailbox).collect();
    assert_eq!(mailboxes.len(), 3, "each has a mailbox of its own");
    let but_for_its_state =
        |machine: &Machine| Machine { state: MachineState::Running, ..machine.clone() };
    let mut said = but_for_its_state(&launched[0]);
    if !H::TELLS_LAUNCH_TIME {
        said.launched_at = mine.launched_at;
    }
    assert_eq!(but_for_its_state(mine), said, "the launch said the same");
}

/// Unknown ids are absent from the answer, and no error.
pub async fn describing_leaves_out_what_is_not_there<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 2).await;
    harness.settle().await;
    let asked = [machines[1].id.clone(), InstanceId::new("i-00000000000000000")];
    let described = answered(harness.port().describe(&asked).await);
    assert_eq!(ids(&described), BTreeSet::from([machines[1].id.clone()]));
    assert_eq!(answered(harness.port().describe(&[]).await), []);
}

/// A machine can be stopped and started, and either can be asked for twice.
pub async fn a_machine_runs_stops_and_starts_again<H: FleetHarness>(harness: H) {
    let fleet = harness.port();
    let id = launch(&harness, "intent-1", 1).await.remove(0).id;
    until(&harness, &id, MachineState::Running).await;
    for round in 0..2 {
        let op = StopOp::new(format!("op-{round}"));
        let order = StopOrder { id: id.clone(), op, until: harness.now().after(PATIENCE) };
        answered(fleet.stop(std::slice::from_ref(&order)).await);
        until(&harness, &id, MachineState::Stopped).await;
        for _ in 0..2 {
            let started = answered(fleet.start(std::slice::from_ref(&id)).await);
            assert_eq!(started, [(id.clone(), StartOutcome::Starting)], "round {round}");
        }
        until(&harness, &id, MachineState::Running).await;
    }
}

/// One answer per id: what runs is starting, what never was has failed.
pub async fn starting_answers_for_each_machine<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 2).await;
    for machine in &machines {
        until(&harness, &machine.id, MachineState::Running).await;
    }
    let unknown = InstanceId::new("i-00000000000000000");
    let asked = [machines[0].id.clone(), unknown.clone(), machines[1].id.clone()];
    let started = answered(harness.port().start(&asked).await);
    assert_eq!(started.len(), asked.len(), "{started:?}");
    for (id, answer) in &started {
        assert!(asked.contains(id), "{id} was not asked about");
        assert_eq!(*id == unknown, matches!(answer, StartOutcome::Failed(_)), "{id}: {answer:?}");
    }
}

/// What was ended stays so, and its intent brings nothing anew.
pub async fn ending_is_final_and_can_be_asked_twice<H: FleetHarness>(harness: H) {
    let fleet = harness.port();
    let machines = launch(&harness, "intent-1", 2).await;
    let (ended, kept) = (machines[0].id.clone(), machines[1].id.clone());
    for _ in 0..2 {
        answered(fleet.terminate(std::slice::from_ref(&ended)).await);
        until(&harness, &ended, MachineState::Gone).await;
    }
    let started = answered(fleet.start(std::slice::from_ref(&ended)).await);
    assert!(matches!(started.as_slice(), [(_, StartOutcome::Failed(_))]), "{started:?}");
    let request = harness.request(&IntentId::new("intent-1"), None, 2);
    // What it says of the one that ended is its own; it must not replace it.
    answered(fleet.launch(&request).await);
    assert_eq!(ids(&listed(&harness).await), BTreeSet::from([kept]));
}

/// An unknown id is no error, and does not keep the known ones beside it alive.
pub async fn ending_what_is_unknown_is_no_error<H: FleetHarness>(harness: H) {
    let id = launch(&harness, "intent-1", 1).await.remove(0).id;
    let unknown = InstanceId::new("i-00000000000000000");
    answered(harness.port().terminate(std::slice::from_ref(&unknown)).await);
    answered(harness.port().terminate(&[unknown, id.clone()]).await);
    until(&harness, &id, MachineState::Gone).await;
    answered(harness.port().terminate(&[]).await);
}

/// What listings and descriptions show of a machine's tags, which is the same.
async fn tags_of<H: FleetHarness>(harness: &H, id: &InstanceId) -> Tags {
    let listed = listed(harness).await;
    let listed = listed.iter().find(|machine| machine.id == *id).expect("it is listed");
    let described = answered(harness.another_process().describe(std::slice::from_ref(id)).await);
    assert_eq!(described.first().map(|machine| machine.tags), Some(listed.tags));
    listed.tags
}

/// Each kind of tag is shown beside the other, on the machines it was put on; twice is once, and
/// another status replaces the one before.
pub async fn tags_are_shown_and_the_last_one_counts<H: FleetHarness>(harness: H) {
    let fleet = harness.port();
    let all: Vec<_> = launch(&harness, "intent-1", 3).await.into_iter().map(|it| it.id).collect();
    harness.settle().await;
    let both = &all[..2];
    for status in [StandbyStatus::WarmingUp, StandbyStatus::Ready, StandbyStatus::Ready] {
        answered(fleet.tag(both, Tag::Standby(status)).await);
        for id in both {
            let shown = Tags { standby: Some(status), job_started: false };
            assert_eq!(tags_of(&harness, id).await, shown);
        }
    }
    for _ in 0..2 {
        answered(fleet.tag(&all[1..], Tag::JobStarted).await);
    }
    let ready = Some(StandbyStatus::Ready);
    let shown = [(ready, false), (ready, true), (None, true)];
    for (id, (standby, job_started)) in all.iter().zip(shown) {
        assert_eq!(tags_of(&harness, id).await, Tags { standby, job_started });
    }
}

/// Tags are the machine's, not its boot's.
pub async fn a_machine_keeps_its_tags_while_it_is_stopped<H: FleetHarness>(harness: H) {
    let fleet = harness.port();
    let id = launch(&harness, "intent-1", 1).await.remove(0).id;
    let one = std::slice::from_ref(&id);
    until(&harness, &id, MachineState::Running).await;
    answered(fleet.tag(one, Tag::Standby(StandbyStatus::ReadyToStop)).await);
    let op = StopOp::new("op");
    let order = StopOrder { id: id.clone(), op, until: harness.now().after(PATIENCE) };
    answered(fleet.stop(&[order]).await);
    until(&harness, &id, MachineState::Stopped).await;
    let standby = Some(StandbyStatus::ReadyToStop);
    assert_eq!(tags_of(&harness, &id).await, Tags { standby, job_started: false });
    answered(fleet.tag(one, Tag::JobStarted).await);
    answered(fleet.start(one).await);
    until(&harness, &id, MachineState::Running).await;
    assert_eq!(tags_of(&harness, &id).await, Tags { standby, job_started: true });
}

/// An unknown or gone id is no error, and does not keep the tag from the others.
pub async fn tagging_what_is_unknown_is_no_error<H: FleetHarness>(harness: H) {
    let fleet = harness.port();
    let machines = launch(&harness, "intent-1", 2).await;
    let (ended, kept) = (machines[0].id.clone(), machines[1].id.clone());
    answered(fleet.terminate(std::slice::from_ref(&ended)).await);
    until(&harness, &ended, MachineState::Gone).await;
    harness.settle().await;
    let unknown = InstanceId::new("i-00000000000000000");
    answered(fleet.tag(std::slice::from_ref(&unknown), Tag::JobStarted).await);
    answered(fleet.tag(&[unknown, ended.clone(), kept.clone()], Tag::JobStarted).await);
    assert_eq!(tags_of(&harness, &kept).await, Tags { standby: None, job_started: true });
    assert_eq!(ids(&listed(&harness).await), BTreeSet::from([kept]), "nothing came back");
    answered(fleet.tag(&[], Tag::JobStarted).await);
}
