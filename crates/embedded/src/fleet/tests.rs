//! Tests of the repairs after a process was killed at a certain line, and of files of other
//! versions. The supervisor here is a `sleep` that holds the lock and does nothing else.
//!
//! Not here: real supervisors and agents (`tests/fleet`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

use bullpen_agent::runner::tree;
use bullpen_core::class::{RunnerClass, Scripts, Usage};
use bullpen_core::ids::IntentId;
use bullpen_core::isolation::{IsolationMode, UserRange};
use bullpen_core::ports::{MachineState, Tags};
use bullpen_core::request::TypePattern;
use bullpen_sim::clock::ManualClock;
use bullpen_sim::contract::fleet::any_machines as request;
use tempfile::TempDir;

use super::directory::{Durability, MachineDirectory, machine_directory};
use super::machines::TOMBSTONE;
use super::record::{BootFile, LaunchRecord, MachineFacts, MachineFile, MachineGoal, Version};
use super::*;
use crate::testing::{clock, secs};
use bullpen_agent::machine::{RunnerProgram, USER_DATA, UserData, mark};

struct TestHost {
    directory: TempDir,
    clock: Arc<ManualClock>,
}

impl TestHost {
    fn new() -> Self {
        Self { directory: TempDir::new().unwrap(), clock: clock() }
    }

    fn fleet(&self) -> ProcessFleet<ManualClock> {
        self.fleet_with_user_data("")
    }

    fn fleet_with_user_data(&self, user_data: &str) -> ProcessFleet<ManualClock> {
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

    /// The number of the machines' processes.
    fn processes(&self) -> usize {
        let marks = BTreeSet::from([mark(self.directory.path()).unwrap()]);
        tree::under(&marks).unwrap().len()
    }
}

impl Drop for TestHost {
    fn drop(&mut self) {
        ending::end_all(&BTreeSet::from([mark(self.directory.path()).unwrap()]), &BTreeSet::new())
            .unwrap();
    }
}

type TestMachines = super::Machines<ManualClock>;

/// Writes a launch of two machines, as a process that dies before it makes the first one.
fn write_launch(machines: &TestMachines) -> LaunchRecord {
    let record = machines.plan_launch(&request("intent", 2)).unwrap();
    directory::write(&machines.launching(), &record, Durability::PowerCut).unwrap();
    record
}

fn ids(machines: &[Machine]) -> Vec<&InstanceId> {
    machines.iter().map(|machine| &machine.id).collect()
}

fn states(machines: &TestMachines) -> Vec<MachineState> {
    machines.describe(None).unwrap().items.iter().map(|machine| machine.state).collect()
}

fn home(machines: &TestMachines, id: &InstanceId) -> MachineDirectory {
    machine_directory(&machines.directory, id).unwrap()
}

/// Writes another goal for a machine, as a process that dies right afterwards.
fn set_goal(machines: &TestMachines, id: &InstanceId, life: MachineGoal) {
    let home = home(machines, id);
    let record = home.record().unwrap().unwrap();
    home.write_record(&MachineFile { life, ..record }).unwrap();
}

#[test]
fn repeating_an_interrupted_launch_makes_its_machines() {
    let host = TestHost::new();
    let record = write_launch(&host.fleet().machines);
    let machines = host.fleet().machines;
    let again = machines.launch(&request("intent", 2)).unwrap();
    let planned: Vec<_> = record.machines.iter().map(|facts| &facts.id).collect();
    assert_eq!(ids(&again.machines), planned);
    assert_eq!((states(&machines).len(), host.processes()), (2, 2));
}

#[test]
fn an_interrupted_launch_keeps_the_scripts_that_its_class_had() {
    let host = TestHost::new();
    let runner = RunnerProgram::Directory("/opt/runner".into());
    let data = UserData::new("m".into(), "u".into(), runner);
    let scripts = |text: &str| Scripts { prerun: Some(text.to_owned()), ..Scripts::default() };
    let with = |text: &str| {
        let class = RunnerClass { scripts: scripts(text), ..request("intent", 1).class };
        LaunchRequest { class, ..request("intent", 1) }
    };
    let machines = host.fleet_with_user_data(&data.to_text()).machines;
    let record = machines.plan_launch(&with("then")).unwrap();
    directory::write(&machines.launching(), &record, Durability::PowerCut).unwrap();
    // The process dies here. The next one has other scripts and no user data.
    let machines = host.fleet().machines;
    let launched = machines.launch(&with("now")).unwrap().machines;
    let path = home(&machines, &launched[0].id).path().join(USER_DATA);
    let written = fs::read_to_string(path).unwrap();
    assert_eq!(UserData::from_text(&written).unwrap(), data.of_class(&scripts("then")));
    let other = LaunchRequest { intent: IntentId::new("other"), ..with("now") };
    let refused = matches!(machines.launch(&other), Err(Fault::Denied(_)));
    assert!(refused, "scripts need user data to which the launch can add them");
}

#[test]
fn a_list_or_another_launch_makes_the_machines_of_an_interrupted_launch() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    write_launch(&machines);
    assert_eq!(states(&host.fleet().machines), [MachineState::Pending; 2]);
    machines.set_machines_max(3);
    let record = machines.plan_launch(&request("second", 2)).unwrap();
    assert_eq!(record.machines.len(), 1, "the interrupted launch counts against the capacity");
    directory::write(&machines.launching(), &record, Durability::PowerCut).unwrap();
    assert_eq!(machines.launch(&request("third", 1)), Err(Fault::NoCapacity));
    assert_eq!(host.processes(), 3);
}

#[test]
fn a_machine_without_a_supervisor_is_started_once() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let record = write_launch(&machines);
    let facts: &MachineFacts = &record.machines[0];
    let home = home(&machines, &facts.id);
    home.create("").unwrap();
    let made = MachineFile {
        version: Version::CURRENT,
        facts: facts.clone(),
        life: machines.new_boot(),
        plan: machines.plan.clone(),
        stops: BTreeMap::new(),
        tags: Tags::default(),
    };
    home.write_record(&made).unwrap();
    assert_eq!(machines.launch(&request("intent", 2)).unwrap().machines.len(), 2);
    assert_eq!(host.processes(), 2);
    // The process dies after the start, before it writes that: the lock shows that it is up.
    set_goal(&machines, &facts.id, made.life);
    assert_eq!(states(&machines), [MachineState::Pending; 2]);
    assert_eq!(host.processes(), 2);
}

#[test]
fn the_next_list_finishes_an_interrupted_stop_or_end() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let launched = machines.launch(&request("intent", 3)).unwrap().machines;
    set_goal(&machines, &launched[0].id, MachineGoal::Stopping);
    set_goal(&machines, &launched[1].id, MachineGoal::Ending);
    let expected = [MachineState::Stopped, MachineState::Gone, MachineState::Pending];
    assert_eq!(states(&host.fleet().machines), expected);
    assert_eq!(host.processes(), 1);
}

#[test]
fn no_machine_outlives_its_host() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let launched = machines.launch(&request("intent", 1)).unwrap().machines;
    ending::end_all(&BTreeSet::from([mark(host.directory.path()).unwrap()]), &BTreeSet::new())
        .unwrap();
    let boot = "b".to_owned();
    let host_boot = "another boot of the host".to_owned();
    set_goal(&machines, &launched[0].id, MachineGoal::Up { boot, host_boot, spawned: false });
    assert_eq!(states(&machines), [MachineState::Gone]);
    assert_eq!(host.processes(), 0);
}

#[test]
fn a_gone_machine_is_forgotten_before_its_launch_is() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let launched = machines.launch(&request("intent", 1)).unwrap().machines;
    machines.terminate(&[launched[0].id.clone()]).unwrap();
    host.clock.advance(TOMBSTONE / 2);
    assert_eq!(states(&machines), [MachineState::Gone]);
    host.clock.advance(TOMBSTONE / 2);
    assert_eq!(states(&machines), []);
    assert!(!home(&machines, &launched[0].id).path().exists());
    let again = machines.launch(&request("intent", 1)).unwrap().machines;
    assert_eq!((ids(&again), again[0].state), (ids(&launched), MachineState::Gone));
    assert_eq!(host.processes(), 0);
}

#[test]
fn a_directory_that_a_power_cut_left_empty_is_removed_by_the_next_launch() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let left = home(&machines, &InstanceId::new("i-0123"));
    left.create("").unwrap();
    fs::write(left.machine_file(), "").unwrap();
    assert_eq!(states(&machines), []);
    machines.launch(&request("intent", 1)).unwrap();
    assert!(!left.path().exists());
}

#[test]
fn lacking_capacity_differs_from_a_request_that_no_type_fits() {
    let host = TestHost::new();
    let fleet = host.fleet();
    let mut only_one_type = request("short", 1);
    only_one_type.allowed_types = vec![TypePattern::new("c6i.large")];
    let out_of = ["local-a", "local-b"].map(|zone| bullpen_core::creation::Offering {
        usage: Usage::Spot,
        instance_type: "c6i.large".into(),
        zone: zone.into(),
    });
    fleet.set_capacity(Capacity { machines_max: None, out_of: out_of.clone().into() });
    let launched = fleet.machines.launch(&only_one_type).unwrap();
    assert_eq!((launched.machines.len(), launched.shortages), (0, out_of.into()));
    let never = LaunchRequest { allowed_types: Vec::new(), ..request("never", 1) };
    assert!(matches!(fleet.machines.launch(&never), Err(Fault::Denied(_))));
}

/// Files of version 1 must stay readable.
#[test]
fn files_of_version_1_are_read_and_newer_ones_left_unchanged() {
    let machine = include_str!("../../fixtures/fleet/machine-v1.json");
    let record: MachineFile = serde_json::from_str(machine).unwrap();
    assert!(matches!(&record.life, MachineGoal::Up { spawned: true, .. }));
    assert_eq!(record.plan.watchdog, secs(176_400));
    let boot = include_str!("../../fixtures/fleet/boot-v1.json");
    assert_eq!(serde_json::from_str::<BootFile>(boot).unwrap().supervisor.pid, 4242);
    let launch = include_str!("../../fixtures/fleet/launch-v1.json");
    assert_eq!(serde_json::from_str::<LaunchRecord>(launch).unwrap().machines[0], record.facts);

    let host = TestHost::new();
    let machines = host.fleet().machines;
    let home = home(&machines, &record.facts.id);
    home.create("").unwrap();
    let newer = machine.replace("\"version\": 1", "\"version\": 2");
    fs::write(home.machine_file(), newer).unwrap();
    let listed = machines.describe(None).unwrap();
    let [bad] = &listed.unreadable[..] else { panic!("{listed:?}") };
    assert!(bad.why.contains("machine.json") && bad.why.contains("version 2"), "{bad}");
    assert_eq!((bad.key.as_str(), bad.is_newer()), (record.facts.id.as_str(), true));
    assert_eq!(machines.describe(None), Ok(listed), "the file was changed");
}

/// A machine of a newer version stops no other: it keeps its place, its file and its processes.
#[test]
fn an_unreadable_machine_stops_no_other() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let launched = machines.launch(&request("one", 2)).unwrap().machines;
    let [bad, good] = [&launched[0].id, &launched[1].id];
    let file = home(&machines, bad).machine_file();
    let newer = fs::read_to_string(&file).unwrap().replace("\"version\": 1", "\"version\": 2");
    fs::write(&file, &newer).unwrap();

    let listed = machines.describe(None).unwrap();
    assert_eq!(listed.items.iter().map(|machine| &machine.id).collect::<Vec<_>>(), [good]);
    assert_eq!(listed.unreadable[0].key, bad.as_str());
    let both = [bad.clone(), good.clone()];
    assert!(matches!(
        machines.describe(Some(&both[..1])).unwrap().complete(),
        Err(Fault::Unreadable(_))
    ));
    assert!(matches!(machines.terminate(&both), Err(Fault::Unreadable(_))));
    let described = machines.describe(Some(&both)).unwrap();
    assert_eq!(described.items[0].state, MachineState::Gone, "the other one is ended");
    assert_eq!(described.unreadable[0].key, bad.as_str());
    assert_eq!(machines.launch(&request("two", 1)).unwrap().machines.len(), 1);
    assert_eq!(fs::read_to_string(&file).unwrap(), newer, "the file was changed");
    fs::write(&file, newer.replace("\"version\": 2", "\"version\": 1")).unwrap();
    machines.terminate(&both).unwrap();
}

/// An open launch of a newer version delays launches, and nothing else.
#[test]
fn an_unreadable_launch_delays_launches_only() {
    let host = TestHost::new();
    let machines = host.fleet().machines;
    let launched = machines.launch(&request("one", 1)).unwrap().machines;
    fs::write(machines.launching(), "{\"version\": 2}").unwrap();
    assert_eq!(machines.describe(None).unwrap().items.len(), 1);
    machines.terminate(&[launched[0].id.clone()]).unwrap();
    assert_eq!(states(&machines), [MachineState::Gone]);
    assert!(matches!(machines.launch(&request("two", 1)), Err(Fault::Unreadable(_))));
    assert_eq!(fs::read_to_string(machines.launching()).unwrap(), "{\"version\": 2}");
    fs::remove_file(machines.launching()).unwrap();
    assert_eq!(machines.launch(&request("two", 1)).unwrap().machines.len(), 1);
}

#[test]
fn nothing_is_launched_where_required_isolation_is_impossible() {
    let host = TestHost::new();
    let settings = IsolationSettings {
        mode: IsolationMode::None,
        users: UserRange::DEFAULT,
        state: host.directory.path().to_owned(),
        home: None,
        secrets: Vec::new(),
        fixed: Vec::new(),
        visible: Vec::new(),
        processes_max: None,
        cgroup: None,
    };
    let fleet = host.fleet_with("", Some(settings.clone()));
    let chosen = ChosenIsolation { refused: true, ..choose(&settings, host.directory.path()) };
    fleet.machines.chosen.set(chosen).unwrap();
    let refused = fleet.machines.launch(&request("one", 1)).unwrap_err();
    let Fault::Denied(why) = refused else { panic!("{refused}") };
    assert!(why.starts_with("isolation is required, and jobs run as"), "{why}");
    assert_eq!(fleet.machines.describe(None).unwrap().items, []);
}

#[test]
fn invalid_settings_are_refused_with_a_hint() {
    let host = TestHost::new();
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
    let none = ProcessFleet::open(settings(Vec::new(), host.directory.path()), clock());
    assert_eq!(none.unwrap_err().to_string(), "the supervisor's command line is empty");
    let file = host.directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = ProcessFleet::open(settings(vec!["x".into()], &file), clock()).unwrap_err();
    assert!(error.to_string().contains("file") && error.hint().contains("write"), "{error}");
}

impl super::Machines<ManualClock> {
    fn set_machines_max(&self, machines: u32) {
        *lock(&self.capacity) = Capacity { machines_max: Some(machines), ..Capacity::default() };
    }
}
