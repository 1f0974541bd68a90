//! One machine's life: what ends it, what does not, and what is left of it.
//!
//! Not here: several processes at one fleet (`crowds`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use bullpen_agent::machine::mark;
use bullpen_agent::runner::tree::Identity;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Clock as _, Fault, Fleet as _, MachineState, StartOutcome};
use bullpen_embedded::fleet::{Capacity, FleetSettings};
use rustix::process::{Pid, Signal, getsid, kill_process};

use crate::stage::{
    Ground, RealClock, STUBBORN, STUBBORN_PROCESSES, eventually, open, order, real, request,
    running, state, until,
};

const SHORT: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3600);

fn pid(of: Identity) -> Pid {
    Pid::from_raw(of.pid).unwrap()
}

/// Waits until the supervisor has ended its machine, without asking the fleet: nobody has to look
/// for it to happen. Nothing runs then.
async fn ended_by_itself(ground: &Ground, id: &InstanceId, why: &str) {
    eventually("it has ended", async || ground.ended(id).is_some()).await;
    assert_eq!(ground.ended(id).as_deref(), Some(why));
    eventually("no process is left", async || ground.processes().is_empty()).await;
}

#[test]
fn the_watchdog_ends_an_agent_that_hangs() {
    real(async {
        let ground = Ground::new();
        let fleet = open(FleetSettings { watchdog: SHORT, ..ground.settings(STUBBORN) });
        let launched = fleet.launch(&request("intent", 2)).await.unwrap().machines;
        for machine in &launched {
            eventually("it has ended", async || ground.ended(&machine.id).is_some()).await;
        }
        for machine in &launched {
            ended_by_itself(&ground, &machine.id, "watchdog").await;
            assert_eq!(state(&fleet, &machine.id).await, MachineState::Gone);
        }
    });
}

#[test]
fn the_watchdog_ends_a_machine_whose_agent_never_comes_up() {
    real(async {
        let ground = Ground::new();
        let no_agent = FleetSettings {
            agent: vec!["/nowhere/agent".into()],
            watchdog: SHORT,
            ..ground.settings("")
        };
        let endless_boot =
            FleetSettings { boot_delay: LONG, watchdog: SHORT, ..ground.settings(STUBBORN) };
        for (intent, settings) in [("no agent", no_agent), ("endless boot", endless_boot)] {
            let fleet = open(settings);
            let id = fleet.launch(&request(intent, 1)).await.unwrap().machines.remove(0).id;
            ended_by_itself(&ground, &id, "watchdog").await;
            assert_eq!(state(&fleet, &id).await, MachineState::Gone);
        }
    });
}

#[test]
fn the_agent_can_shorten_the_watchdog() {
    real(async {
        let ground = Ground::new();
        let agent =
            r#"echo 2020-01-01T00:00:00Z > "$2/new" && mv "$2/new" "$2/ends-by"; sleep 1000"#;
        let fleet = ground.fleet(agent);
        let id = fleet.launch(&request("intent", 1)).await.unwrap().machines.remove(0).id;
        ended_by_itself(&ground, &id, "ends-by").await;
        assert_eq!(state(&fleet, &id).await, MachineState::Gone);
    });
}

#[test]
fn a_crashed_agent_is_started_again_and_one_that_is_done_ends_the_machine() {
    real(async {
        let ground = Ground::new();
        let crashes = r#"echo "$4" >> "$2/agent/starts"; [ "$(wc -l < "$2/agent/starts")" -lt 3 ] && kill -9 $$; sleep 1000"#;
        let fleet = ground.fleet(crashes);
        let id = running(&fleet, "crashes").await.id;
        eventually("it is started three times", async || ground.lines(&id, "starts").len() == 3)
            .await;
        let starts = ground.lines(&id, "starts");
        assert!(starts.iter().all(|boot| *boot == starts[0]), "one boot: {starts:?}");
        assert_eq!(state(&fleet, &id).await, MachineState::Running);

        let done = ground.fleet("exit 0").launch(&request("done", 1)).await.unwrap();
        until(&fleet, &done.machines[0].id, MachineState::Gone).await;
    });
}

#[test]
fn a_supervisor_that_is_told_to_ends_its_machine() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        kill_process(pid(ground.supervisor(&id).unwrap()), Signal::TERM).unwrap();
        ended_by_itself(&ground, &id, "terminated").await;
        assert_eq!(state(&fleet, &id).await, MachineState::Gone);
    });
}

#[test]
fn nothing_of_a_machine_outlives_the_look_after_its_supervisor_was_killed() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(STUBBORN);
        let (killed, kept) = (running(&fleet, "one").await, running(&fleet, "two").await);
        let of_both = 2 * STUBBORN_PROCESSES;
        eventually("all of both run", async || ground.processes().len() == of_both).await;
        let supervisor = ground.supervisor(&killed.id).unwrap();
        supervisor.kill().unwrap();
        eventually("it is dead", async || !supervisor.is_alive()).await;
        assert_eq!(ground.processes().len(), of_both - 1, "the agent does not notice");

        let listed = ground.fleet(STUBBORN).list().await.unwrap();
        let states: Vec<_> = listed.iter().map(|one| (&one.id, one.state)).collect();
        assert_eq!(states.len(), 2);
        assert!(states.contains(&(&killed.id, MachineState::Gone)), "{states:?}");
        assert!(states.contains(&(&kept.id, MachineState::Running)), "{states:?}");
        fleet.terminate(&[kept.id]).await.unwrap();
        assert_eq!(ground.processes(), []);
    });
}

#[test]
fn a_supervisor_is_of_a_session_of_its_own() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        let supervisor = ground.supervisor(&id).unwrap();
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
fn a_stop_past_its_time_is_refused_and_one_in_time_is_carried_out_once() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(STUBBORN);
        let id = running(&fleet, "intent").await.id;
        let now = RealClock::new().now();
        let late = fleet.stop(&[order(&id, "late", now)]).await;
        assert!(matches!(&late, Err(Fault::Denied(why)) if why.contains("late")), "{late:?}");
        assert_eq!(state(&fleet, &id).await, MachineState::Running);

        let in_time = [order(&id, "op", now.after(LONG))];
        fleet.stop(&in_time).await.unwrap();
        assert_eq!(state(&fleet, &id).await, MachineState::Stopped);
        assert_eq!(ground.processes(), []);
        fleet.start(std::slice::from_ref(&id)).await.unwrap();
        until(&fleet, &id, MachineState::Running).await;
        ground.fleet(STUBBORN).stop(&in_time).await.unwrap();
        assert_eq!(state(&fleet, &id).await, MachineState::Running, "it was carried out before");
    });
}

#[test]
fn a_started_machine_has_its_files_and_a_new_boot() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(r#"echo "$4" >> "$2/agent/boots"; sleep 1000"#);
        let id = running(&fleet, "intent").await.id;
        for boots in 1..=3 {
            eventually("it has booted", async || ground.lines(&id, "boots").len() == boots).await;
            let now = RealClock::new().now();
            fleet.stop(&[order(&id, &format!("op-{boots}"), now.after(LONG))]).await.unwrap();
            let started = fleet.start(std::slice::from_ref(&id)).await.unwrap();
            assert_eq!(started, [(id.clone(), StartOutcome::Starting)]);
        }
        let mut boots = ground.lines(&id, "boots");
        boots.dedup();
        assert!(boots.len() >= 3, "{boots:?}");
    });
}

#[test]
fn a_stopped_machine_leaves_its_room_to_others() {
    real(async {
        let ground = Ground::new();
        let capacity = Capacity { machines_max: Some(1), ..Capacity::default() };
        let fleet = open(FleetSettings { capacity, ..ground.settings(STUBBORN) });
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
fn a_machine_keeps_its_user_data_to_itself_and_leaves_little() {
    real(async {
        let ground = Ground::new();
        let fleet = ground.fleet(r#"mkdir -p "$2/agent/work/deep"; sleep 1000"#);
        let machine = running(&fleet, "intent").await;
        let home = ground.directory().join(machine.id.as_str());
        let user_data = home.join("user-data");
        assert_eq!(fs::read_to_string(&user_data).unwrap(), "what the agent is told");
        assert_eq!(fs::metadata(&user_data).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(machine.mailbox.as_str(), machine.id.as_str());
        assert_eq!(machine.id.as_str().len(), "i-".len() + 17);

        fleet.terminate(std::slice::from_ref(&machine.id)).await.unwrap();
        assert!(!user_data.exists() && !home.join("agent").exists());
        assert_eq!(fs::read_dir(ground.directory().join("trash")).unwrap().count(), 0);
        assert_eq!(state(&fleet, &machine.id).await, MachineState::Gone);
        let described = fleet.describe(&[machine.id, InstanceId::new("../x")]).await.unwrap();
        assert_eq!(described.len(), 1, "what was is remembered for a while");
    });
}

#[test]
fn an_agent_has_the_environment_it_is_given_and_its_mark() {
    real(async {
        let ground = Ground::new();
        let write =
            r#"env > "$2/agent/new" && mv "$2/agent/new" "$2/agent/environment"; sleep 1000"#;
        let id = running(&ground.fleet(write), "intent").await.id;
        let lines = || ground.lines(&id, "environment");
        eventually("it is written", async || !lines().is_empty()).await;
        let set_by_the_shell = ["PWD=", "OLDPWD=", "SHLVL=", "_="];
        let mut given = lines();
        given.retain(|line| !set_by_the_shell.iter().any(|name| line.starts_with(name)));
        given.sort();
        let mark = mark(&ground.directory().join(id.as_str())).unwrap();
        let expected =
            [format!("BULLPEN_LISTENER_OF={mark}/agent"), "PATH=/usr/bin:/bin".to_owned()];
        assert_eq!(given, expected);
    });
}

#[test]
fn a_supervisor_that_is_not_there_is_said_so() {
    real(async {
        let ground = Ground::new();
        let settings = FleetSettings {
            supervisor: vec!["/nowhere/bullpen".into()],
            ..ground.settings(STUBBORN)
        };
        let launched = open(settings).launch(&request("intent", 1)).await;
        assert!(
            matches!(&launched, Err(Fault::Denied(why)) if why.contains("/nowhere/bullpen")),
            "{launched:?}"
        );
        let listed = ground.fleet(STUBBORN).list().await.unwrap();
        assert_eq!(listed[0].state, MachineState::Gone);
    });
}

/// Whoever cancels a launch and then ends every machine must see what it launched.
#[test]
fn a_launch_that_was_given_up_is_seen_by_whatever_is_asked_next() {
    real(async {
        let ground = Ground::new();
        let fleet = open(ground.settings(STUBBORN));
        for round in 0..5 {
            let launched = request(&format!("intent-{round}"), 3);
            // Begun, and dropped before it could answer.
            let begun = futures_util::FutureExt::now_or_never(fleet.launch(&launched));
            assert!(begun.is_none(), "three machines take longer than one look");
            let up = fleet.list().await.unwrap();
            let up: Vec<_> = up.into_iter().filter(|one| one.state != MachineState::Gone).collect();
            assert_eq!(up.len(), 3, "round {round}");
            let ids: Vec<InstanceId> = up.into_iter().map(|one| one.id).collect();
            fleet.terminate(&ids).await.unwrap();
            assert!(ground.processes().is_empty(), "round {round}");
        }
    });
}
