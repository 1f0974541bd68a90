//! What is found of a process that was killed at a certain line, and what was written by another
//! version. The supervisor here is a `sleep`: it holds the lock and does nothing else.
//!
//! Not here: real supervisors and agents (`tests/fleet`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use bullpen_agent::runner::tree;
use bullpen_core::class::{RunnerClass, Scripts, Usage};
use bullpen_core::ids::{IntentId, SpecHash};
use bullpen_core::isolation::{IsolationMode, UserRange};
use bullpen_core::ports::{MachineState, Tags};
use bullpen_core::request::TypePattern;
use bullpen_sim::clock::ManualClock;
use tempfile::TempDir;

use super::directory::{Durability, MachineDirectory, home_of};
use super::machines::TOMBSTONE;
use super::record::{BootFile, LaunchRecord, MachineFacts, MachineFile, MachineGoal, Version};
use super::*;
use crate::testing::{clock, secs};
use bullpen_agent::machine::{RunnerProgram, USER_DATA, UserData, mark};

struct Ground {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl Ground {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), clock: clock() }
    }

    fn fleet(&self) -> ProcessFleet<ManualClock> {
        self.fleet_that_tells("")
    }

    fn fleet_that_tells(&self, user_data: &str) -> ProcessFleet<ManualClock> {
        self.fleet_with(user_data, None)
    }

    fn fleet_with(
        &self,
        user_data: &str,
        isolation: Option<IsolationSettings>,
    ) -> ProcessFleet<ManualClock> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let settings = FleetSettings {
            directory: self.directory.path().to_owned(),
            supervisor: ["/bin/sh", "-c", "exec sleep 1000"].map(OsString::from).into(),
            agent: vec!["agent".into()],
            environment: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            user_data: user_data.to_owned(),
            watchdog: secs(600),
            boot_delay: secs(0),
            capacity: Capacity::default(),
            catalogue: Catalogue::built_in(),
            entropy: Entropy::new(|| NEXT.fetch_add(1, Ordering::Relaxed)),
            isolation,
        };
        ProcessFleet::open(settings, Arc::clone(&self.clock)).unwrap()
    }

    /// How many processes there are.
    fn processes(&self) -> usize {
        let marks = BTreeSet::from([mark(self.directory.path()).unwrap()]);
        tree::under(&marks).unwrap().len()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        ending::end_all(&BTreeSet::from([mark(self.directory.path()).unwrap()]), &BTreeSet::new())
            .unwrap();
    }
}

fn request(intent: &str, count: u32) -> LaunchRequest {
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

type Yard = super::Machines<ManualClock>;

/// A launch of two, killed before the first of its machines was made.
fn begun(yard: &Yard) -> LaunchRecord {
    let record = yard.plan_launch(&request("intent", 2)).unwrap();
    directory::write(&yard.launching(), &record, Durability::PowerCut).unwrap();
    record
}

fn ids(machines: &[Machine]) -> Vec<&InstanceId> {
    machines.iter().map(|machine| &machine.id).collect()
}

fn states(yard: &Yard) -> Vec<MachineState> {
    yard.machines(None).unwrap().iter().map(|machine| machine.state).collect()
}

fn home(yard: &Yard, id: &InstanceId) -> MachineDirectory {
    home_of(&yard.directory, id).unwrap()
}

/// Writes down another life for a machine, as a process does that is killed right after.
fn meant(yard: &Yard, id: &InstanceId, life: MachineGoal) {
    let home = home(yard, id);
    let record = home.record().unwrap().unwrap();
    home.write_record(&MachineFile { life, ..record }).unwrap();
}

#[test]
fn a_launch_that_was_only_written_down_is_made_by_the_same_launch_again() {
    let ground = Ground::new();
    let record = begun(&ground.fleet().yard);
    let yard = ground.fleet().yard;
    let again = yard.launch(&request("intent", 2)).unwrap();
    let meant: Vec<_> = record.machines.iter().map(|facts| &facts.id).collect();
    assert_eq!(ids(&again.machines), meant);
    assert_eq!((states(&yard).len(), ground.processes()), (2, 2));
}

#[test]
fn a_launch_tells_its_machines_the_scripts_its_class_had_when_it_was_written_down() {
    let ground = Ground::new();
    let runner = RunnerProgram::Directory("/opt/runner".into());
    let data = UserData::new("m".into(), "u".into(), runner);
    let scripts = |text: &str| Scripts { prerun: Some(text.to_owned()), ..Scripts::default() };
    let with = |text: &str| {
        let class = RunnerClass { scripts: scripts(text), ..request("intent", 1).class };
        LaunchRequest { class, ..request("intent", 1) }
    };
    let yard = ground.fleet_that_tells(&data.to_text()).yard;
    let record = yard.plan_launch(&with("then")).unwrap();
    directory::write(&yard.launching(), &record, Durability::PowerCut).unwrap();
    // Killed there; whoever goes on has another configuration, and nothing to tell.
    let yard = ground.fleet().yard;
    let launched = yard.launch(&with("now")).unwrap().machines;
    let told = fs::read_to_string(home(&yard, &launched[0].id).path().join(USER_DATA)).unwrap();
    assert_eq!(UserData::from_text(&told).unwrap(), data.of_class(&scripts("then")));
    let other = LaunchRequest { intent: IntentId::new("other"), ..with("now") };
    assert!(matches!(yard.launch(&other), Err(Fault::Denied(_))), "there is nothing to add it to");
}

#[test]
fn a_launch_that_was_only_written_down_is_made_by_whoever_lists_or_launches() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    begun(&yard);
    assert_eq!(states(&ground.fleet().yard), [MachineState::Pending; 2]);
    yard.set_room(3);
    let record = yard.plan_launch(&request("second", 2)).unwrap();
    assert_eq!(record.machines.len(), 1, "what was written down has taken its room");
    directory::write(&yard.launching(), &record, Durability::PowerCut).unwrap();
    assert_eq!(yard.launch(&request("third", 1)), Err(Fault::NoCapacity));
    assert_eq!(ground.processes(), 3);
}

#[test]
fn a_machine_that_was_made_and_not_started_is_started_once() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let record = begun(&yard);
    let facts: &MachineFacts = &record.machines[0];
    let home = home(&yard, &facts.id);
    home.furnish("").unwrap();
    let made = MachineFile {
        version: Version::CURRENT,
        facts: facts.clone(),
        life: yard.new_boot(),
        plan: yard.plan.clone(),
        stops: BTreeMap::new(),
        tags: Tags::default(),
    };
    home.write_record(&made).unwrap();
    assert_eq!(yard.launch(&request("intent", 2)).unwrap().machines.len(), 2);
    assert_eq!(ground.processes(), 2);
    // Killed after the start and before that was noted: the lock says that it is up.
    meant(&yard, &facts.id, made.life);
    assert_eq!(states(&yard), [MachineState::Pending; 2]);
    assert_eq!(ground.processes(), 2);
}

#[test]
fn what_was_begun_to_be_stopped_or_ended_is_so_after_the_next_look() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let launched = yard.launch(&request("intent", 3)).unwrap().machines;
    meant(&yard, &launched[0].id, MachineGoal::Stopping);
    meant(&yard, &launched[1].id, MachineGoal::Ending);
    let expected = [MachineState::Stopped, MachineState::Gone, MachineState::Pending];
    assert_eq!(states(&ground.fleet().yard), expected);
    assert_eq!(ground.processes(), 1);
}

#[test]
fn no_machine_outlives_its_host() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let launched = yard.launch(&request("intent", 1)).unwrap().machines;
    ending::end_all(&BTreeSet::from([mark(ground.directory.path()).unwrap()]), &BTreeSet::new())
        .unwrap();
    let boot = "b".to_owned();
    let host_boot = "another boot of the host".to_owned();
    meant(&yard, &launched[0].id, MachineGoal::Up { boot, host_boot, spawned: false });
    assert_eq!(states(&yard), [MachineState::Gone]);
    assert_eq!(ground.processes(), 0);
}

#[test]
fn a_gone_machine_is_forgotten_after_a_while_and_its_launch_is_not() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let launched = yard.launch(&request("intent", 1)).unwrap().machines;
    yard.terminate(&[launched[0].id.clone()]).unwrap();
    ground.clock.advance(TOMBSTONE / 2);
    assert_eq!(states(&yard), [MachineState::Gone]);
    ground.clock.advance(TOMBSTONE / 2);
    assert_eq!(states(&yard), []);
    assert!(!home(&yard, &launched[0].id).path().exists());
    let again = yard.launch(&request("intent", 1)).unwrap().machines;
    assert_eq!((ids(&again), again[0].state), (ids(&launched), MachineState::Gone));
    assert_eq!(ground.processes(), 0);
}

#[test]
fn a_directory_that_a_power_cut_left_empty_is_removed_by_the_next_launch() {
    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let left = home(&yard, &InstanceId::new("i-0123"));
    left.furnish("").unwrap();
    fs::write(left.machine_file(), "").unwrap();
    assert_eq!(states(&yard), []);
    yard.launch(&request("intent", 1)).unwrap();
    assert!(!left.path().exists());
}

#[test]
fn short_capacity_is_told_apart_from_what_there_never_is() {
    let ground = Ground::new();
    let fleet = ground.fleet();
    let mut only_one_type = request("short", 1);
    only_one_type.allowed_types = vec![TypePattern::new("c6i.large")];
    let out_of = ["local-a", "local-b"].map(|zone| bullpen_core::creation::Offering {
        usage: Usage::Spot,
        instance_type: "c6i.large".into(),
        zone: zone.into(),
    });
    fleet.set_capacity(Capacity { machines_max: None, out_of: out_of.clone().into() });
    let launched = fleet.yard.launch(&only_one_type).unwrap();
    assert_eq!((launched.machines.len(), launched.shortages), (0, out_of.into()));
    let never = LaunchRequest { allowed_types: Vec::new(), ..request("never", 1) };
    assert!(matches!(fleet.yard.launch(&never), Err(Fault::Denied(_))));
}

/// Files of version 1 keep their meaning.
#[test]
fn what_version_1_wrote_is_read_and_a_newer_one_is_left_alone() {
    let machine = include_str!("../../fixtures/fleet/machine-v1.json");
    let record: MachineFile = serde_json::from_str(machine).unwrap();
    assert!(matches!(&record.life, MachineGoal::Up { spawned: true, .. }));
    assert_eq!(record.plan.watchdog, secs(176_400));
    let boot = include_str!("../../fixtures/fleet/boot-v1.json");
    assert_eq!(serde_json::from_str::<BootFile>(boot).unwrap().supervisor.pid, 4242);
    let launch = include_str!("../../fixtures/fleet/launch-v1.json");
    assert_eq!(serde_json::from_str::<LaunchRecord>(launch).unwrap().machines[0], record.facts);

    let ground = Ground::new();
    let yard = ground.fleet().yard;
    let home = home(&yard, &record.facts.id);
    home.furnish("").unwrap();
    let newer = machine.replace("\"version\": 1", "\"version\": 2");
    fs::write(home.machine_file(), newer).unwrap();
    let refused = yard.machines(None).unwrap_err();
    let Fault::Unreadable(why) = &refused else { panic!("{refused}") };
    assert!(why.contains("machine.json") && why.contains("version 2"), "{why}");
    assert_eq!(yard.machines(None).unwrap_err(), refused, "it is still there");
}

#[test]
fn nothing_is_launched_where_jobs_must_be_held_and_cannot_be() {
    let ground = Ground::new();
    let settings = IsolationSettings {
        wish: IsolationMode::None,
        users: UserRange::DEFAULT,
        state: ground.directory.path().to_owned(),
        home: None,
        secrets: Vec::new(),
        fixed: Vec::new(),
        visible: Vec::new(),
        processes_max: None,
        cgroup: None,
    };
    let fleet = ground.fleet_with("", Some(settings.clone()));
    let held = ChosenIsolation { refused: true, ..choose(&settings, ground.directory.path()) };
    fleet.yard.chosen.set(held).unwrap();
    let refused = fleet.yard.launch(&request("one", 1)).unwrap_err();
    let Fault::Denied(why) = refused else { panic!("{refused}") };
    assert!(why.starts_with("isolation is required, and jobs run as"), "{why}");
    assert_eq!(fleet.yard.machines(None).unwrap(), []);
}

#[test]
fn settings_that_cannot_work_are_refused_with_a_hint() {
    let ground = Ground::new();
    let settings = |supervisor: Vec<OsString>, directory: &Path| FleetSettings {
        directory: directory.to_owned(),
        supervisor,
        agent: vec!["agent".into()],
        environment: BTreeMap::new(),
        user_data: String::new(),
        watchdog: secs(1),
        boot_delay: secs(0),
        capacity: Capacity::default(),
        catalogue: Catalogue::built_in(),
        entropy: Entropy::new(|| 1),
        isolation: None,
    };
    let none = ProcessFleet::open(settings(Vec::new(), ground.directory.path()), clock());
    assert_eq!(none.unwrap_err().to_string(), "the supervisor's command line is empty");
    let file = ground.directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ProcessFleet::open(settings(vec!["x".into()], &file), clock()).unwrap_err();
    assert!(error.to_string().contains("file") && error.hint().contains("write"), "{error}");
}

impl super::Machines<ManualClock> {
    fn set_room(&self, machines: u32) {
        *lock(&self.capacity) = Capacity { machines_max: Some(machines), ..Capacity::default() };
    }
}
