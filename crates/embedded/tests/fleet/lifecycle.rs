//! Tests of one machine's life: its supervisor and agent, its ends, and the files it leaves.
//!
//! Not here: several processes with one fleet (`concurrent`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use bullpen_agent::machine::mark;
use bullpen_agent::runner::tree::Identity;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock as _, Fault, Fleet as _, MachineState, StartOutcome};
use bullpen_embedded::fleet::{Capacity, FleetSettings};
use rustix::process::{Pid, Signal, getsid, kill_process};

use crate::support::{
    RealClock, STUBBORN, STUBBORN_PROCESSES, TestHost, eventually, open, order, real, request,
    running, state, until,
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3600);

fn pid(of: Identity) -> Pid {
    Pid::from_raw(of.pid).unwrap()
}

/// Waits until the supervisor has ended its machine and no process runs. Does not call the fleet,
/// whose repairs could end the machine instead.
async fn ended_by_itself(host: &TestHost, id: &InstanceId, why: &str) {
    eventually("the machine has ended", async || host.ended(id).is_some()).await;
    assert_eq!(host.ended(id).as_deref(), Some(why));
    eventually("no process is left", async || host.processes().is_empty()).await;
}

#[test]
fn the_watchdog_ends_an_agent_that_hangs() {
    real(async {
        let host = TestHost::new();
        let fleet = open(FleetSettings { watchdog: SHORT, ..host.settings(STUBBORN) });
        let launched = fleet.launch(&request("intent", 2)).await.unwrap().machines;
        for machine in &launched {
            eventually("the machine has ended", async || host.ended(&machine.id).is_some()).await;
        }
        for machine in &launched {
            ended_by_itself(&host, &machine.id, "watchdog").await;
            assert_eq!(state(&fleet, &machine.id).await, MachineState::Gone);
        }
    });
}

#[test]
fn the_watchdog_ends_a_machine_whose_agent_never_starts() {
    real(async {
        let host = TestHost::new();
        let no_agent = FleetSettings {
            agent: vec!["/nowhere/agent".into()],
            watchdog: SHORT,
            ..host.settings("")
        };
        let endless_boot =
            FleetSettings { boot_delay: LONG, watchdog: SHORT, ..host.settings(STUBBORN) };
        for (intent, settings) in [("no agent", no_agent), ("endless boot", endless_boot)] {
            let fleet = open(settings);
            let id = fleet.launch(&request(intent, 1)).await.unwrap().machines.remove(0).id;
            ended_by_itself(&host, &id, "watchdog").await;
            assert_eq!(state(&fleet, &id).await, MachineState::Gone);
        }
    });
}

#[test]
fn the_agent_can_shorten_the_watchdog() {
    real(async {
        let host = TestHost::new();
        let agent =
            r#"echo 2020-01-01T00:00:00Z > "$2/new" && mv "$2/new" "$2/ends-by"; sleep 1000"#;
        let fleet = host.fleet(agent);
        let id = fleet.launch(&request("intent", 1)).await.unwrap().machines.remove(0).id;
        ended_by_itself(&host, &id, "ends-by").await;
        assert_eq!(state(&fleet, &id).await, MachineState::Gone);
    });
}

#[test]
fn the_supervisor_restarts_a_crashed_agent_and_ends_the_machine_after_a_finished_one() {
    real(async {
        let host = TestHost::new();
        let crashes = r#"echo "$4" >> "$2/agent/starts"; [ "$(wc -l < "$2/agent/starts")" -lt 3 ] && kill -9 $$; sleep 1000"#;
        let fleet = host.fleet(crashes);
        let id = running(&fleet, "crashes").await.id;
        eventually("the agent has started three times", async || {
            host.lines(&id, "starts").len() == 3
        })
        .await;
        let starts = host.lines(&id, "starts");
        assert!(starts.iter().all(|boot| *boot == starts[0]), "one boot: {starts:?}");
        assert_eq!(state(&fleet, &id).await, MachineState::Running);

        let done = host.fleet("exit 0").launch(&request("done", 1)).await.unwrap();
        until(&fleet, &done.machines[0].id, MachineState::Gone).await;
    });
}

#[test]
fn a_supervisor_ends_its_machine_on_sigterm() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        kill_process(pid(host.supervisor(&id).unwrap()), Signal::TERM).unwrap();
        ended_by_itself(&host, &id, "terminated").await;
        assert_eq!(state(&fleet, &id).await, MachineState::Gone);
    });
}

#[test]
fn a_list_ends_a_machine_whose_supervisor_was_killed() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(STUBBORN);
        let (killed, kept) = (running(&fleet, "one").await, running(&fleet, "two").await);
        let of_both = 2 * STUBBORN_PROCESSES;
        eventually("all processes of both run", async || host.processes().len() == of_both).await;
        let supervisor = host.supervisor(&killed.id).unwrap();
        supervisor.kill().unwrap();
        eventually("the supervisor is dead", async || !supervisor.is_alive()).await;
        assert_eq!(host.processes().len(), of_both - 1, "the agent goes on");

        let listed = host.fleet(STUBBORN).list(None).await.unwrap().items;
        let states: Vec<_> = listed.iter().map(|machine| (&machine.id, machine.state)).collect();
        assert_eq!(states.len(), 2);
        assert!(states.contains(&(&killed.id, MachineState::Gone)), "{states:?}");
        assert!(states.contains(&(&kept.id, MachineState::Running)), "{states:?}");
        fleet.terminate(&[kept.id]).await.unwrap();
        assert_eq!(host.processes(), []);
    });
}

#[test]
fn a_supervisor_has_its_own_session_and_no_inherited_files() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        let supervisor = host.supervisor(&id).unwrap();
        assert_eq!(getsid(Some(pid(supervisor))).unwrap(), pid(supervisor));
        let open = fs::read_dir(format!("/proc/{}/fd", supervisor.pid)).unwrap();
        let open: Vec<String> = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok())
            .map(|target| target.to_string_lossy().into_owned())
            .collect();
        assert!(!open.iter().any(|target| target.contains("fleet-door")), "{open:?}");
    });
}

#[test]
fn a_late_stop_is_refused_and_a_timely_one_carried_out_once() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        let now = RealClock::new().now();
        let late = fleet.stop(&[order(&id, "late", now)]).await;
        assert!(matches!(&late, Err(Fault::Denied(why)) if why.contains("late")), "{late:?}");
        assert_eq!(state(&fleet, &id).await, MachineState::Running);

        let in_time = [order(&id, "op", now.after(LONG))];
        fleet.stop(&in_time).await.unwrap();
        assert_eq!(state(&fleet, &id).await, MachineState::Stopped);
        assert_eq!(host.processes(), []);
        fleet.start(std::slice::from_ref(&id)).await.unwrap();
        until(&fleet, &id, MachineState::Running).await;
        host.fleet(STUBBORN).stop(&in_time).await.unwrap();
        assert_eq!(state(&fleet, &id).await, MachineState::Running, "the stop ran a second time");
    });
}

#[test]
fn a_started_machine_keeps_its_files_and_has_a_new_boot() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(r#"echo "$4" >> "$2/agent/boots"; sleep 1000"#);
        let id = running(&fleet, "intent").await.id;
        for boots in 1..=3 {
            let has_booted = async || host.lines(&id, "boots").len() == boots;
            eventually("the machine has booted", has_booted).await;
            let now = RealClock::new().now();
            fleet.stop(&[order(&id, &format!("op-{boots}"), now.after(LONG))]).await.unwrap();
            let started = fleet.start(std::slice::from_ref(&id)).await.unwrap();
            assert_eq!(started, [(id.clone(), StartOutcome::Starting)]);
        }
        let mut boots = host.lines(&id, "boots");
        boots.dedup();
        assert!(boots.len() >= 3, "{boots:?}");
    });
}

#[test]
fn a_stopped_machine_frees_its_capacity() {
    real(async {
        let host = TestHost::new();
        let capacity = Capacity { machines_max: Some(1), ..Capacity::default() };
        let fleet = open(FleetSettings { capacity, ..host.settings(STUBBORN) });
        let id = running(&fleet, "one").await.id;
        assert_eq!(fleet.launch(&request("none", 1)).await, Err(Fault::NoCapacity));
        let now = RealClock::new().now();
        fleet.stop(&[order(&id, "op", now.after(LONG))]).await.unwrap();
        let other = running(&fleet, "two").await.id;
        let ids = std::slice::from_ref(&id);
        assert_eq!(fleet.start(ids).await.unwrap()[0].1, StartOutcome::NoCapacity);
        fleet.terminate(&[other]).await.unwrap();
        assert_eq!(fleet.start(ids).await.unwrap()[0].1, StartOutcome::Starting);
    });
}

#[test]
fn user_data_is_private_and_an_ended_machine_leaves_few_files() {
    real(async {
        let host = TestHost::new();
        let fleet = host.fleet(r#"mkdir -p "$2/agent/work/deep"; sleep 1000"#);
        let machine = running(&fleet, "intent").await;
        let home = host.directory().join(machine.id.as_str());
        let user_data = home.join("user-data");
        assert_eq!(fs::read_to_string(&user_data).unwrap(), "the user data of the tests");
        assert_eq!(fs::metadata(&user_data).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(machine.mailbox.as_str(), machine.id.as_str());
        assert_eq!(machine.id.as_str().len(), "i-".len() + 17);

        fleet.terminate(std::slice::from_ref(&machine.id)).await.unwrap();
        assert!(!user_data.exists() && !home.join("agent").exists());
        assert_eq!(fs::read_dir(host.directory().join("trash")).unwrap().count(), 0);
        assert_eq!(state(&fleet, &machine.id).await, MachineState::Gone);
        let described = fleet.describe(&[machine.id, InstanceId::new("../x")]).await.unwrap().items;
        assert_eq!(described.len(), 1, "the fleet remembers a gone machine for a while");
    });
}

#[test]
fn an_agents_environment_is_the_configured_one_and_its_mark() {
    real(async {
        let host = TestHost::new();
        let write =
            r#"env > "$2/agent/new" && mv "$2/agent/new" "$2/agent/environment"; sleep 1000"#;
        let id = running(&host.fleet(write), "intent").await.id;
        let lines = || host.lines(&id, "environment");
        eventually("the agent has written it", async || !lines().is_empty()).await;
        let set_by_the_shell = ["PWD=", "OLDPWD=", "SHLVL=", "_="];
        let mut given = lines();
        given.retain(|line| !set_by_the_shell.iter().any(|name| line.starts_with(name)));
        given.sort();
        let mark = mark(&host.directory().join(id.as_str())).unwrap();
        let expected =
            [format!("BULLPEN_LISTENER_OF={mark}/agent"), "PATH=/usr/bin:/bin".to_owned()];
        assert_eq!(given, expected);
    });
}

#[test]
fn the_fault_of_a_missing_supervisor_names_it() {
    real(async {
        let host = TestHost::new();
        let settings = FleetSettings {
            supervisor: vec!["/nowhere/bullpen".into()],
            ..host.settings(STUBBORN)
        };
        let launched = open(settings).launch(&request("intent", 1)).await;
        assert!(
            matches!(&launched, Err(Fault::Denied(why)) if why.contains("/nowhere/bullpen")),
            "{launched:?}"
        );
        let listed = host.fleet(STUBBORN).list(None).await.unwrap().items;
        assert_eq!(listed[0].state, MachineState::Gone);
    });
}

/// A caller that cancels a launch and then ends every machine must see the machines of that launch.
#[test]
fn a_list_after_a_cancelled_launch_shows_its_machines() {
    real(async {
        let host = TestHost::new();
        let fleet = open(host.settings(STUBBORN));
        for round in 0..5 {
            let launched = request(&format!("intent-{round}"), 3);
            // Polled once, and dropped before it could answer.
            let answer = futures_util::FutureExt::now_or_never(fleet.launch(&launched));
            assert!(answer.is_none(), "three machines take longer than one poll");
            let mut up = fleet.list(None).await.unwrap().items;
            up.retain(|machine| machine.state != MachineState::Gone);
            assert_eq!(up.len(), 3, "round {round}");
            let ids: Vec<InstanceId> = up.into_iter().map(|machine| machine.id).collect();
            fleet.terminate(&ids).await.unwrap();
            assert!(host.processes().is_empty(), "round {round}");
        }
    });
}
