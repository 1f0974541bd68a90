//! Downloads of agents and scripts: from the web and from S3, and downloads that fail.
//!
//! Not here: the web server (`web`).

use std::process::Command;
use std::time::Duration;

use bullpen_agent::machine::FETCH;
use bullpen_aws::boot::BootPlan;
use bullpen_core::download::Download;

use crate::machine::Machine;
use crate::web::Web;
use crate::{DONE, plan};

const OTHER: &str = "#!/bin/sh\necho another agent\n";

fn fetching(agent: Download) -> BootPlan {
    BootPlan { agent: Some(agent), patience: Duration::from_secs(2), ..plan() }
}

/// Boots a machine whose download of the agent fails, and returns the console.
fn boot_without_agent(machine: &Machine, plan: &BootPlan) -> String {
    let console = machine.boot(plan);
    let journal = machine.journal();
    assert_eq!(journal[4], "bullpen-watchdog.timer armed: 3600 s");
    assert_eq!(journal[5..], ["call systemctl poweroff --force", "off: systemctl"]);
    console
}

#[test]
fn the_agent_is_downloaded_unless_the_image_has_it() {
    let web = Web::start();
    let agent = web.put("agent", DONE);
    for machine in [Machine::new(), Machine::with_agent(OTHER)] {
        machine.boot(&fetching(agent.clone()));
        assert_eq!(machine.agent().as_deref(), Some(DONE));
        assert_eq!(machine.journal().last().unwrap(), "off: bullpen-agent.service is done");
    }
    assert_eq!(web.requests(), ["GET /agent 200", "GET /agent 200"]);
    Machine::with_agent(DONE).boot(&fetching(agent));
    assert_eq!(web.requests().len(), 2);
}

#[test]
fn a_download_from_s3_uses_the_role_of_the_instance() {
    let web = Web::start();
    let agent = web.put("s3://bucket/agents/v1/agent", DONE);
    let machine = Machine::new()
        .with("AWS_ENDPOINT_URL_S3", &web.url)
        .with("EC2_METADATA", &format!("{}/metadata", web.url));
    let console = machine.boot(&fetching(agent));
    assert_eq!(machine.agent().as_deref(), Some(DONE), "{console}");
    // The server answers 200 only if the signature is right.
    assert_eq!(web.requests().last().unwrap(), "GET /bucket/agents/v1/agent 200");
    assert!(!console.contains("s3cr3t"), "{console}");
}

#[test]
fn a_missing_role_powers_the_machine_off() {
    let web = Web::start();
    let agent = web.put("s3://bucket/agent", DONE);
    let machine = Machine::new()
        .with("AWS_ENDPOINT_URL_S3", &web.url)
        .with("EC2_METADATA", &format!("{}/nothing", web.url));
    let console = boot_without_agent(&machine, &fetching(agent));
    assert!(console.contains("bullpen: could not fetch s3://bucket/agent"), "{console}");
    assert!(web.requests().len() > 1, "the script retries the role");
}

#[test]
fn a_wrong_checksum_powers_the_machine_off() {
    let web = Web::start();
    let agent = Download { sha256: "0".repeat(64), ..web.put("agent", OTHER) };
    let machine = Machine::with_agent(DONE);
    let console = boot_without_agent(&machine, &fetching(agent));
    let text = format!("bullpen: {}/agent: expected checksum {}, found ", web.url, "0".repeat(64));
    assert!(console.contains(&text), "{console}");
    assert_eq!(machine.agent().as_deref(), Some(DONE), "the script does not install it");
}

#[test]
fn a_download_that_hangs_is_cancelled() {
    let web = Web::start();
    let agent = web.put("hang/agent", DONE);
    // The plan allows two seconds; the rest is for a busy machine.
    let machine = Machine::new().within_seconds(40);
    let console = boot_without_agent(&machine, &fetching(agent));
    assert!(console.contains("bullpen: could not fetch"), "{console}");
}

#[test]
fn only_https_and_s3_leave_the_machine() {
    let agent = Download { url: "http://example.com/agent".to_owned(), sha256: "0".repeat(64) };
    let console = boot_without_agent(&Machine::new(), &fetching(agent));
    assert!(console.contains("bullpen: neither https nor s3: http://example.com/agent"));
}

/// The agent downloads with the same functions at warm-up, in bash with `-e -u -o pipefail`.
#[test]
fn a_script_is_downloaded_from_s3_too() {
    let web = Web::start();
    let script = web.put("s3://bucket/setup.sh", &"x".repeat(100_000));
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("setup.sh");
    let bring = format!("{FETCH}bring {} {} {}", script.url, script.sha256, place.display());
    let status = Command::new("bash")
        .args(["-e", "-u", "-o", "pipefail", "-c", &format!("patience=60\n{bring}")])
        .env("AWS_ENDPOINT_URL_S3", &web.url)
        .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", format!("{}/metadata", web.url))
        .status();
    assert!(status.expect("bash runs").success());
    assert_eq!(std::fs::read_to_string(place).expect("the script").len(), 100_000);
}
