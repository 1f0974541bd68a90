//! The contract of the `Fleet` port.
//!
//! Machines are visible late and states lag, so a case looks again until it sees the expected
//! state, and gives up after [`PATIENCE`].
//!
//! Not here: which machines a launch chooses, or how long a call takes.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, IntentId, PoolName, SpecHash, StopOp};
use bullpen_core::instance::standby::StandbyStatus;
use bullpen_core::ports::{Fleet, Machine, MachineState, StartOutcome, StopOrder, Tag, Tags};
use bullpen_core::request::TypePattern;

use super::{Harness, all_of, answered};

mod odd;

pub use odd::{
    a_denied_machine_keeps_no_other_from_being_tagged, a_denied_machine_keeps_no_other_from_ending,
    a_denied_machine_keeps_no_other_from_starting_and_stopping,
    a_list_of_several_pages_shows_every_machine_once, a_machine_without_its_tags_is_not_gone,
};

/// One test per case of the fleet's contract.
#[macro_export]
macro_rules! fleet_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            fleet,
            [
                a_launch_brings_the_requested_machines,
                a_launch_is_made_once_per_intent,
                a_launch_whose_answer_was_lost_is_made_once,
                a_launch_may_bring_less_and_never_more,
                machines_are_listed_with_their_tags,
                describing_leaves_out_unknown_machines,
                a_machine_runs_stops_and_starts_again,
                starting_answers_for_each_machine,
                ending_is_final_and_can_be_asked_twice,
                ending_an_unknown_machine_is_no_error,
                tags_are_shown_and_the_last_one_counts,
                a_machine_keeps_its_tags_while_it_is_stopped,
                tagging_an_unknown_machine_is_no_error,
                a_list_of_several_pages_shows_every_machine_once,
                a_denied_machine_keeps_no_other_from_ending,
                a_denied_machine_keeps_no_other_from_starting_and_stopping,
                a_denied_machine_keeps_no_other_from_being_tagged,
                a_machine_without_its_tags_is_not_gone,
            ]
        );
    };
}

/// How long a case waits for a machine to change its state.
pub const PATIENCE: Duration = Duration::from_secs(600);
const LOOKS: u32 = 120;

/// A launch of spot machines of a built-in class, of any type, without a pool.
pub fn any_machines(intent: &str, count: u32) -> LaunchRequest {
    LaunchRequest {
        intent: IntentId::new(intent),
        class: RunnerClass::defaults().remove(0),
        pool: None,
        usage: Usage::Spot,
        allowed_types: vec![TypePattern::new("*")],
        avoid: BTreeSet::new(),
        spec_hash: SpecHash::new("1-abc"),
        count,
    }
}

/// A harness that makes launch requests which its fleet can fulfil.
pub trait FleetHarness: Harness<Port: Fleet> {
    /// Whether a launch's answer contains the launch time. If not, the adapter's own time stands in
    /// for it until the machines are described.
    const TELLS_LAUNCH_TIME: bool = true;

    /// A request for this many machines that the fleet can fulfil.
    fn request(&self, intent: &IntentId, pool: Option<PoolName>, count: u32) -> LaunchRequest;
    /// From now on the cloud has capacity for this many more machines; false if the harness cannot
    /// arrange that.
    fn leave_room_for(&self, machines: u32) -> bool;
    /// From now on a page of the list has at most this many machines; false if the harness cannot
    /// arrange that.
    fn page_by(&self, _machines: usize) -> bool {
        false
    }
    /// From now on the cloud denies every call that would change this machine; false if the harness
    /// cannot arrange that.
    fn deny(&self, _id: &InstanceId) -> impl Future<Output = bool> {
        async { false }
    }
    /// Removes the machine's tags; false if the harness cannot arrange that.
    fn untag(&self, _id: &InstanceId) -> impl Future<Output = bool> {
        async { false }
    }
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

/// Waits until a machine has this state; a machine that is absent from the answer is gone.
async fn until<H: FleetHarness>(harness: &H, id: &InstanceId, wanted: MachineState) {
    for _ in 0..LOOKS {
        let seen = all_of(harness.port().describe(std::slice::from_ref(id)).await);
        match seen.first().map(|machine| machine.state) {
            Some(state) if state == wanted => return,
            None if wanted == MachineState::Gone => return,
            Some(_) | None => harness.pass(PATIENCE / LOOKS).await,
        }
    }
    panic!("{id} was not {wanted:?} within {PATIENCE:?}");
}

/// All listed machines that are not gone, once listings have caught up.
async fn listed<H: FleetHarness>(harness: &H) -> Vec<Machine> {
    harness.settle().await;
    let mut machines = listed_pages(harness).await.concat();
    machines.retain(|machine| machine.state != MachineState::Gone);
    machines
}

/// Every page of the list.
async fn listed_pages<H: FleetHarness>(harness: &H) -> Vec<Vec<Machine>> {
    let (mut pages, mut after) = (Vec::new(), None);
    loop {
        let page = answered(harness.port().list(after.as_deref()).await);
        let (listing, next) = page.split();
        pages.push(all_of(Ok(listing)));
        after = next;
        if after.is_none() {
            return pages;
        }
    }
}

/// A launch brings the requested number of machines, each with its own id.
pub async fn a_launch_brings_the_requested_machines<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 3).await;
    assert_eq!(ids(&machines).len(), 3);
    for machine in &machines {
        assert_eq!(machine.intent, IntentId::new("intent-1"));
        assert!(matches!(machine.state, MachineState::Pending | MachineState::Running));
        until(&harness, &machine.id, MachineState::Running).await;
    }
}

/// A repeated request is the same launch; another intent is another launch.
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

/// A repeated launch finds the machines of a launch whose answer was lost.
pub async fn a_launch_whose_answer_was_lost_is_made_once<H: FleetHarness>(harness: H) {
    let request = harness.request(&IntentId::new("intent-1"), None, 2);
    let answer_lost = harness.lose_next_answer();
    let first = harness.port().launch(&request).await;
    assert_eq!(first.is_err(), answer_lost, "{first:?}");
    let again = answered(harness.port().launch(&request).await);
    assert_eq!(again.machines.len(), 2);
    assert_eq!(ids(&listed(&harness).await), ids(&again.machines));
}

/// With too little capacity a launch brings fewer machines, and a repeat of the request brings no
/// more.
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

/// Listings show every machine with the tags of its launch.
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
    let without_state =
        |machine: &Machine| Machine { state: MachineState::Running, ..machine.clone() };
    let mut launched_as = without_state(&launched[0]);
    if !H::TELLS_LAUNCH_TIME {
        launched_as.launched_at = mine.launched_at;
    }
    assert_eq!(without_state(mine), launched_as, "the launch's answer had the same tags");
}

/// Unknown ids are absent from the answer and cause no error.
pub async fn describing_leaves_out_unknown_machines<H: FleetHarness>(harness: H) {
    let machines = launch(&harness, "intent-1", 2).await;
    harness.settle().await;
    let asked = [machines[1].id.clone(), InstanceId::new("i-00000000000000000")];
    let described = all_of(harness.port().describe(&asked).await);
    assert_eq!(ids(&described), BTreeSet::from([machines[1].id.clone()]));
    assert_eq!(all_of(harness.port().describe(&[]).await), []);
}

/// A machine can be stopped and started, and both calls can be repeated.
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

/// One answer per id: a running machine is starting, an unknown id has failed.
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

/// A terminated machine stays gone, and its intent launches no replacement.
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
    // The answer may still list the terminated machine; the launch must not replace it.
    answered(fleet.launch(&request).await);
    assert_eq!(ids(&listed(&harness).await), BTreeSet::from([kept]));
}

/// An unknown id causes no error, and the known ids of the same call are terminated.
pub async fn ending_an_unknown_machine_is_no_error<H: FleetHarness>(harness: H) {
    let id = launch(&harness, "intent-1", 1).await.remove(0).id;
    let unknown = InstanceId::new("i-00000000000000000");
    answered(harness.port().terminate(std::slice::from_ref(&unknown)).await);
    answered(harness.port().terminate(&[unknown, id.clone()]).await);
    until(&harness, &id, MachineState::Gone).await;
    answered(harness.port().terminate(&[]).await);
}

/// A machine's tags, which listings and descriptions must show alike.
async fn tags_of<H: FleetHarness>(harness: &H, id: &InstanceId) -> Tags {
    let listed = listed(harness).await;
    let listed = listed.iter().find(|machine| machine.id == *id).expect("it is listed");
    let described = all_of(harness.another_process().describe(std::slice::from_ref(id)).await);
    assert_eq!(described.first().map(|machine| machine.tags), Some(listed.tags));
    listed.tags
}

/// Both kinds of tag are shown side by side on the tagged machines; tagging is idempotent, and a
/// new status replaces the previous one.
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

/// Tags survive a stop and a start.
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

/// An unknown or gone id causes no error, and the other ids of the same call are tagged.
pub async fn tagging_an_unknown_machine_is_no_error<H: FleetHarness>(harness: H) {
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
    assert_eq!(ids(&listed(&harness).await), BTreeSet::from([kept]), "tagging revived no machine");
    answered(fleet.tag(&[], Tag::JobStarted).await);
}
