//! Several processes at one fleet, some of which are killed.
//!
//! Not here: one machine's life (`lives`).

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use bullpen_core::ids::IntentId;
use bullpen_core::ports::{Fleet as _, MachineState};
use bullpen_embedded::fleet::{Capacity, FleetSettings};

use crate::stage::{
    Fleet, Ground, STUBBORN, STUBBORN_PROCESSES, eventually, open, real, request, settings, until,
};

/// What a line from a child begins with; everything else on its output is the harness's.
const MARK: &str = "child says:";
const ROOM: u32 = 7;

/// The directory a child works in, if this process is one.
fn role() -> Option<PathBuf> {
    let mut arguments = env::args().skip_while(|argument| argument != "--skip");
    arguments.nth(1)?.strip_prefix("child in ").map(PathBuf::from)
}

struct Launcher {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Launcher {
    /// Runs `test` of this program again, as a child.
    fn start(test: &str, ground: &Ground) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1", "--skip"])
            .arg(format!("child in {}", ground.directory().display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next thing the child says; nothing once nobody holds its output open any more.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.output.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
            if let Some((_, said)) = line.split_once(MARK) {
                return Some(said.trim().to_owned());
            }
            line.clear();
        }
        None
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        self.kill();
    }
}

fn say(what: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{MARK} {what}").unwrap();
    output.flush().unwrap();
}

/// A fleet with little room.
fn small(directory: &Path) -> Fleet {
    let capacity = Capacity { machines_max: Some(ROOM), ..Capacity::default() };
    open(FleetSettings { capacity, ..settings(directory, STUBBORN) })
}

#[test]
fn machines_outlive_whoever_launched_them() {
    real(async {
        if let Some(directory) = role() {
            let machines = small(&directory).launch(&request("intent", 2)).await.unwrap().machines;
            say(&format!("{} {}", machines[0].id, machines[1].id));
            std::future::pending::<()>().await;
        }
        let ground = Ground::new();
        let mut child = Launcher::start("crowds::machines_outlive_whoever_launched_them", &ground);
        let said = child.hear().unwrap();
        child.kill();
        assert_eq!(child.hear(), None, "no machine holds its launcher's output open");
        let fleet = ground.fleet(STUBBORN);
        for id in said.split_whitespace() {
            until(&fleet, &id.into(), MachineState::Running).await;
        }
        eventually("supervisor, agent and what it started run", async || {
            ground.processes().len() == 2 * STUBBORN_PROCESSES
        })
        .await;
        let again = fleet.launch(&request("intent", 2)).await.unwrap().machines;
        let ids: Vec<&str> = again.iter().map(|machine| machine.id.as_str()).collect();
        assert_eq!(ids, said.split_whitespace().collect::<Vec<_>>());
        let ids: Vec<_> = again.into_iter().map(|machine| machine.id).collect();
        fleet.terminate(&ids).await.unwrap();
        assert_eq!(ground.processes(), []);
    });
}

/// Killed again and again in the middle of launching; each launch is whole, and made once.
#[test]
fn a_launcher_that_is_killed_loses_no_machine_and_doubles_none() {
    const TEST: &str = "crowds::a_launcher_that_is_killed_loses_no_machine_and_doubles_none";
    const LAUNCHES: u32 = 3;
    const ROUNDS: u32 = 8;
    real(async {
        if let Some(directory) = role() {
            let fleet = open(settings(&directory, STUBBORN));
            for number in 0..LAUNCHES {
                let intent = format!("{number}-{}", std::process::id());
                say(&intent);
                fleet.launch(&request(&intent, 2)).await.unwrap();
            }
            std::future::pending::<()>().await;
        }
        let ground = Ground::new();
        let fleet = ground.fleet(STUBBORN);
        let mut intents = BTreeSet::new();
        for round in 0..ROUNDS {
            let mut child = Launcher::start(TEST, &ground);
            for _ in 0..=round % LAUNCHES {
                intents.insert(child.hear().unwrap());
            }
            // It has just begun a launch. Some steps that mean nothing, so that it is killed in
            // another place each time.
            for step in 0..round * 1_000 {
                std::hint::black_box(request(&step.to_string(), 2));
            }
            child.kill();
            while let Some(intent) = child.hear() {
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
        for machine in fleet.list().await.unwrap() {
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
fn processes_that_launch_at_once_share_the_room() {
    real(async {
        if let Some(directory) = role() {
            let intent = std::process::id().to_string();
            let answer = small(&directory).launch(&request(&intent, 3)).await;
            return say(&answer.map_or(0, |launched| launched.machines.len()).to_string());
        }
        let ground = Ground::new();
        let test = "crowds::processes_that_launch_at_once_share_the_room";
        let mut children: Vec<_> = (0..4).map(|_| Launcher::start(test, &ground)).collect();
        let came: u32 =
            children.iter_mut().map(|child| child.hear().unwrap().parse::<u32>().unwrap()).sum();
        assert_eq!(came, ROOM);
        let listed = small(ground.directory()).list().await.unwrap();
        assert_eq!(u32::try_from(listed.len()).unwrap(), ROOM);
    });
}
