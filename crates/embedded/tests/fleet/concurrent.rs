//! Tests of several processes with one fleet, some of which the tests kill.
//!
//! Not here: one machine's life (`lifecycle`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bullpen_core::ids::IntentId;
use bullpen_core::ports::{Fleet as _, MachineState};
use bullpen_embedded::fleet::{Capacity, FleetSettings};

use crate::child::{Process, child_directory, print_marked};
use crate::support::{
    Fleet, STUBBORN, STUBBORN_PROCESSES, TestHost, eventually, open, real, request, settings, until,
};

const MACHINES_MAX: u32 = 7;

/// A fleet with a capacity of [`MACHINES_MAX`].
fn small(directory: &Path) -> Fleet {
    let capacity = Capacity { machines_max: Some(MACHINES_MAX), ..Capacity::default() };
    open(FleetSettings { capacity, ..settings(directory, STUBBORN) })
}

#[test]
fn machines_outlive_their_launcher() {
    real(async {
        if let Some(directory) = child_directory() {
            let machines = small(&directory).launch(&request("intent", 2)).await.unwrap().machines;
            print_marked(&format!("{} {}", machines[0].id, machines[1].id));
            std::future::pending::<()>().await;
        }
        let host = TestHost::new();
        let mut child =
            Process::start("concurrent::machines_outlive_their_launcher", host.directory());
        let launched = child.receive().unwrap();
        child.kill();
        assert_eq!(child.receive(), None, "no machine holds its launcher's output open");
        let fleet = host.fleet(STUBBORN);
        for id in launched.split_whitespace() {
            until(&fleet, &id.into(), MachineState::Running).await;
        }
        eventually("supervisors, agents and their children run", async || {
            host.processes().len() == 2 * STUBBORN_PROCESSES
        })
        .await;
        let again = fleet.launch(&request("intent", 2)).await.unwrap().machines;
        let ids: Vec<&str> = again.iter().map(|machine| machine.id.as_str()).collect();
        assert_eq!(ids, launched.split_whitespace().collect::<Vec<_>>());
        let ids: Vec<_> = again.into_iter().map(|machine| machine.id).collect();
        fleet.terminate(&ids).await.unwrap();
        assert_eq!(host.processes(), []);
    });
}

/// The test kills launchers during a launch; each launch must be complete, and made once.
#[test]
fn a_killed_launcher_loses_and_doubles_no_machine() {
    const TEST: &str = "concurrent::a_killed_launcher_loses_and_doubles_no_machine";
    const LAUNCHES: u32 = 3;
    const ROUNDS: u32 = 8;
    real(async {
        if let Some(directory) = child_directory() {
            let fleet = open(settings(&directory, STUBBORN));
            for number in 0..LAUNCHES {
                let intent = format!("{number}-{}", std::process::id());
                print_marked(&intent);
                fleet.launch(&request(&intent, 2)).await.unwrap();
            }
            std::future::pending::<()>().await;
        }
        let host = TestHost::new();
        let fleet = host.fleet(STUBBORN);
        let mut intents = BTreeSet::new();
        for round in 0..ROUNDS {
            let mut child = Process::start(TEST, host.directory());
            for _ in 0..=round % LAUNCHES {
                intents.insert(child.receive().unwrap());
            }
            // The child has just begun a launch. The loop wastes time, so that each round kills the
            // child at another point.
            for step in 0..round * 1_000 {
                std::hint::black_box(request(&step.to_string(), 2));
            }
            child.kill();
            while let Some(intent) = child.receive() {
                intents.insert(intent);
            }
        }
        let mut launched = BTreeMap::new();
        for intent in &intents {
            let answer = fleet.launch(&request(intent, 2)).await.unwrap();
            let ids: BTreeSet<_> = answer.machines.into_iter().map(|machine| machine.id).collect();
            launched.insert(IntentId::new(intent), ids);
        }
        let mut listed: BTreeMap<IntentId, BTreeSet<_>> = BTreeMap::new();
        for machine in fleet.list(None).await.unwrap().items {
            assert_ne!(machine.state, MachineState::Gone, "{machine:?}");
            listed.entry(machine.intent).or_default().insert(machine.id);
        }
        assert_eq!(listed, launched);
        assert!(listed.values().all(|machines| machines.len() == 2), "{listed:?}");
        for id in listed.values().flatten() {
            until(&fleet, id, MachineState::Running).await;
        }
    });
}

#[test]
fn concurrent_launches_share_the_capacity() {
    real(async {
        if let Some(directory) = child_directory() {
            let intent = std::process::id().to_string();
            let answer = small(&directory).launch(&request(&intent, 3)).await;
            return print_marked(&answer.map_or(0, |launched| launched.machines.len()).to_string());
        }
        let host = TestHost::new();
        let test = "concurrent::concurrent_launches_share_the_capacity";
        let mut children: Vec<_> = (0..4).map(|_| Process::start(test, host.directory())).collect();
        let launched: u32 =
            children.iter_mut().map(|child| child.receive().unwrap().parse::<u32>().unwrap()).sum();
        assert_eq!(launched, MACHINES_MAX);
        let listed = small(host.directory()).list(None).await.unwrap().items;
        assert_eq!(u32::try_from(listed.len()).unwrap(), MACHINES_MAX);
    });
}
