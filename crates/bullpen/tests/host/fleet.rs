//! Machines of the process fleet, with their supervisors and agents: the scripts of their class,
//! and the cloud's notice that it takes them away.
//!
//! Not here: launches, stops and ends as such (`bullpen-embedded`).

use std::fs;
use std::time::Duration;

use bullpen_core::class::{RunnerClass, Scripts};
use bullpen_core::creation::LaunchRequest;
use bullpen_core::ids::{InstanceId, StopOp};
use bullpen_core::mailbox::{AgentPhase, Report, SignalKind};
use bullpen_core::ports::{Clock as _, Fault, Fleet as _, MachineState, StartOutcome, StopOrder};
use bullpen_embedded::fleet::ProcessFleet;
use bullpen_embedded::system::SystemClock;
use bullpen_github::stand_in::protocol::Conclusion;
use bullpen_sim::contract::fleet::any_machines;

use crate::fleets::fleet;
use crate::github::Forge;
use crate::machine::{Machine, token};
use crate::waiting::until;

const HOUR: Duration = Duration::from_secs(3_600);

/// One machine of a fleet.
struct Host {
    fleet: ProcessFleet<SystemClock>,
    machine: Machine,
    id: InstanceId,
}

impl Host {
    /// Launches a machine of a class with these scripts.
    async fn launched(forge: &Forge, scripts: Scripts) -> Self {
        let mut machine = Machine::called("");
        let user_data = machine.user_data(forge).to_text();
        let fleet =
            fleet(machine.state.path().join("machines"), user_data, Duration::from_secs(3_600));
        let request = any_machines("intent", 1);
        let class = RunnerClass { scripts, ..request.class };
        let request = LaunchRequest { class, ..request };
        let id = fleet.launch(&request).await.expect("there is room").machines.remove(0).id;
        machine.id = id.to_string();
        Self { fleet, machine, id }
    }

    async fn is(&self, wanted: MachineState) {
        let id = std::slice::from_ref(&self.id);
        until("state", async || {
            let seen = self.fleet.describe(id).await.expect("the files are there").items;
            (seen.first()?.state == wanted).then_some(())
        })
        .await;
    }

    /// Waits for the heartbeat of an agent that waits for orders, in another boot than this;
    /// returns that boot.
    async fn is_ready(&self, not_in: &str) -> String {
        let ready = |report: &Report| {
            let beat = report.beat.as_ref();
            beat.is_some_and(|beat| beat.boot != not_in && beat.phase == AgentPhase::Waiting)
        };
        let report = self.machine.report("boot", ready).await;
        report.beat.expect("it was just there").boot
    }

    async fn stops_and_starts(&self) {
        let until = self.machine.clock.now().after(HOUR);
        let order = StopOrder { id: self.id.clone(), op: StopOp::new("op"), until };
        self.fleet.stop(&[order]).await.expect("it is in time");
        self.is(MachineState::Stopped).await;
        let started = self.fleet.start(std::slice::from_ref(&self.id)).await;
        assert_eq!(started, Ok(vec![(self.id.clone(), StartOutcome::Starting)]));
    }
}

/// A script that adds a line to a file beside the machine, which cleaning does not empty.
fn adds(line: &str) -> String {
    format!("echo {line} >>$HOME/../../said")
}

#[tokio::test]
async fn a_class_installs_once_per_machine_and_prepares_each_boot_in_their_order() {
    let forge = Forge::new().await;
    let scripts = Scripts {
        image_preinstall: Some(adds("image-once")),
        preinstall: Some(adds("once")),
        image_prerun: Some(adds("image-each")),
        prerun: Some(adds("each")),
    };
    let host = Host::launched(&forge, scripts).await;
    let said = || fs::read_to_string(host.machine.path("said")).expect("it has run");
    let first = host.is_ready("").await;
    let (once, each) = ("image-once\nonce\n", "image-each\neach\n");
    assert_eq!(said(), format!("{once}{each}"));
    host.stops_and_starts().await;
    host.is_ready(&first).await;
    assert_eq!(said(), format!("{once}{each}{each}"));
}

#[tokio::test]
async fn a_preinstall_that_fails_is_reported_with_its_tail_and_ends_the_machine() {
    let forge = Forge::new().await;
    let scripts = Scripts {
        image_preinstall: Some("echo of no use\nfalse\necho never".to_owned()),
        preinstall: Some(adds("once")),
        ..Scripts::default()
    };
    let host = Host::launched(&forge, scripts).await;
    let failed = host.machine.signal(SignalKind::WarmUpFailed, 0).await.detail;
    assert!(failed.starts_with("image-preinstall: ") && failed.contains("of no use"), "{failed}");
    assert!(!failed.contains("never"), "{failed}");
    host.is(MachineState::Gone).await;
    assert!(!host.machine.path("said").exists(), "what comes after it has not run");
}

#[tokio::test]
async fn a_machine_that_will_be_taken_away_says_so_and_finishes_its_job() {
    let forge = Forge::new().await;
    let host = Host::launched(&forge, Scripts::default()).await;
    let machine = &host.machine;
    machine.assign(1, token(&forge).await).await;
    machine.signal(SignalKind::Registered, 1).await;
    let job = forge.job("warm", "patient", "until [ -e go ]; do sleep 0.1; done");
    machine.signal(SignalKind::JobStarted, 1).await;
    host.fleet.reclaim(&host.id).await.expect("its agent runs");
    assert_eq!(machine.signal(SignalKind::Interrupted, 1).await.detail, "SIGTERM");
    host.is(MachineState::Running).await;
    fs::write(machine.work("go"), "").expect("it can be written");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    host.is(MachineState::Running).await;
    host.fleet.terminate(std::slice::from_ref(&host.id)).await.expect("it can be ended");
    host.is(MachineState::Gone).await;
    assert_eq!(host.fleet.reclaim(&host.id).await, Err(Fault::NotFound));
}
