//! Agents and scripts that are not in the image or the user data: where they come from, and what
//! happens if they do not come.

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

/// Boots a machine whose agent does not come, and gives the console.
fn boot_in_vain(machine: &Machine, plan: &BootPlan) -> String {
    let console = machine.boot(plan);
    let journal = machine.journal();
    assert_eq!(journal[4], "bullpen-watchdog.timer armed: 3600 s");
    assert_eq!(journal[5..], ["call systemctl poweroff --force", "off: systemctl"]);
    console
}

#[test]
fn an_agent_is_fetched_unless_the_image_has_it() {
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
fn from_s3_it_is_fetched_with_the_role_of_the_instance() {
    let web = Web::start();
    let agent = web.put("s3://bucket/agents/v1/agent", DONE);
    let machine = Machine::new()
        .with("AWS_ENDPOINT_URL_S3", &web.url)
        .with("EC2_METADATA", &format!("{}/metadata", web.url));
    let console = machine.boot(&fetching(agent));
    assert_eq!(machine.agent().as_deref(), Some(DONE), "{console}");
    // The server answers so only if the signature is right.
    assert_eq!(web.requests().last().unwrap(), "GET /bucket/agents/v1/agent 200");
    assert!(!console.contains("s3cr3t"), "{console}");
}

#[test]
fn a_role_that_is_not_there_is_the_end() {
    let web = Web::start();
    let agent = web.put("s3://bucket/agent", DONE);
    let machine = Machine::new()
        .with("AWS_ENDPOINT_URL_S3", &web.url)
        .with("EC2_METADATA", &format!("{}/nothing", web.url));
    let console = boot_in_vain(&machine, &fetching(agent));
    assert!(console.contains("bullpen: could not fetch s3://bucket/agent"), "{console}");
    assert!(web.requests().len() > 1, "it was tried again");
}

#[test]
fn another_checksum_is_the_end() {
    let web = Web::start();
    let agent = Download { sha256: "0".repeat(64), ..web.put("agent", OTHER) };
    let machine = Machine::with_agent(DONE);
    let console = boot_in_vain(&machine, &fetching(agent));
    let said = format!("bullpen: {}/agent: expected checksum {}, found ", web.url, "0".repeat(64));
    assert!(console.contains(&said), "{console}");
    assert_eq!(machine.agent().as_deref(), Some(DONE), "it was not put into place");
}

#[test]
fn a_download_that_hangs_is_given_up() {
    let web = Web::start();
    let agent = web.put("hang/agent", DONE);
    // Two seconds are the plan's; the rest is for a busy machine.
    let machine = Machine::new().within_seconds(40);
    let console = boot_in_vain(&machine, &fetching(agent));
    assert!(console.contains("bullpen: could not fetch"), "{console}");
}

#[test]
fn only_https_and_s3_leave_the_machine() {
    let agent = Download { url: "http://example.com/agent".to_owned(), sha256: "0".repeat(64) };
    let console = boot_in_vain(&Machine::new(), &fetching(agent));
    assert!(console.contains("bullpen: neither https nor s3: http://example.com/agent"));
}

/// What the agent fetches at warm-up, it fetches the same way, in bash that forgives nothing.
#[test]
fn a_script_comes_from_s3_as_well() {
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
    assert_eq!(std::fs::read_to_string(place).expect("it is there").len(), 100_000);
}
