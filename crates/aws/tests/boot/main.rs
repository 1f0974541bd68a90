//! Tests that lint the boot script and run it: on a machine whose systemd is a stand-in
//! (`tests/machine`), with a stand-in for the web, S3 and the instance metadata (`web.py`).
//!
//! The agent is a shell script here. A machine that is not powered off within two minutes fails its
//! test.
//!
//! Not here: the script's text (beside `boot`), or real agents and EC2 (`bullpen`'s tests).

mod fetching;
mod lint;
mod machine;
mod web;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::time::Duration;

use bullpen_aws::boot::{BootPlan, PATIENCE};
use machine::Machine;

/// An agent that prints its arguments and ends.
const DONE: &str = "#!/bin/sh\necho \"agent: $*\"\n";

fn plan() -> BootPlan {
    BootPlan {
        watchdog: Duration::from_secs(3_600),
        patience: PATIENCE,
        agent: None,
        user: None,
        sudo: false,
        docker: false,
        payload: "{}".to_owned(),
    }
}

#[test]
fn the_script_arms_the_watchdog_first_and_the_machine_ends_with_the_agent() {
    let machine = Machine::with_agent(DONE);
    let user = Some("worker".to_owned());
    let console = machine.boot(&BootPlan { user, ..plan() });
    assert_eq!(
        machine.journal(),
        [
            "boot",
            "user data begin",
            "call systemctl enable bullpen-watchdog.timer",
            "call systemctl restart bullpen-watchdog.timer",
            "bullpen-watchdog.timer armed: 3600 s",
            "call useradd -m -s /bin/bash worker",
            "call runuser -u worker -- sudo -n true",
            "call systemctl enable bullpen-agent.service",
            "call systemctl restart bullpen-agent.service",
            "bullpen-agent.service started",
            "bullpen-agent.service ended: 0",
            "off: bullpen-agent.service is done",
        ]
    );
    assert!(console.contains("agent: --machine /var/lib/bullpen/machine"), "{console}");
}

#[test]
fn a_second_boot_starts_the_units_only() {
    let agent = "#!/bin/sh\ncat /proc/sys/kernel/random/boot_id >>/var/lib/bullpen/boots\n";
    let machine = Machine::with_agent(agent);
    machine.boot(&plan());
    let first = machine.journal().len();
    machine.boot(&plan());
    assert_eq!(
        machine.journal()[first..],
        [
            "boot",
            "bullpen-watchdog.timer armed: 3600 s",
            "bullpen-agent.service started",
            "bullpen-agent.service ended: 0",
            "off: bullpen-agent.service is done",
        ]
    );
    let boots = machine.text("var/lib/bullpen/boots");
    let boots: Vec<&str> = boots.lines().collect();
    assert!(matches!(boots[..], [one, two] if one != two), "{boots:?}");
}

#[test]
fn systemd_restarts_an_agent_that_fails() {
    let agent = "#!/bin/sh\necho x >>/var/lib/bullpen/starts\n\
                 [ \"$(wc -l </var/lib/bullpen/starts)\" = 3 ]\n";
    let machine = Machine::with_agent(agent).with("BULLPEN_MACHINE_SPEED", "20");
    machine.boot(&plan());
    assert_eq!(machine.text("var/lib/bullpen/starts").lines().count(), 3);
    assert_eq!(machine.journal().last().unwrap(), "off: bullpen-agent.service is done");
}

#[test]
fn the_watchdog_ends_a_script_that_hangs() {
    let machine = Machine::with_agent(DONE)
        .with("BULLPEN_MACHINE_SPEED", "1000")
        .with("BULLPEN_MACHINE_STUCK", "useradd");
    machine.boot(&BootPlan { user: Some("worker".to_owned()), ..plan() });
    let journal = machine.journal();
    assert!(journal.contains(&"bullpen-watchdog.timer elapsed".to_owned()), "{journal:?}");
    assert_eq!(journal.last().unwrap(), "off: systemctl");
}

#[test]
fn the_watchdog_ends_an_agent_that_hangs_at_every_boot() {
    let machine =
        Machine::with_agent("#!/bin/sh\nexec sleep 3600\n").with("BULLPEN_MACHINE_SPEED", "1000");
    for boots in 1..=2 {
        machine.boot(&plan());
        let elapsed = |line: &&String| *line == "bullpen-watchdog.timer elapsed";
        assert_eq!(machine.journal().iter().filter(elapsed).count(), boots);
    }
}

#[test]
fn a_failure_powers_the_machine_off_and_leaves_the_watchdog_armed() {
    // A file where the script needs a directory.
    let machine = Machine::with_agent(DONE).with_file("var/lib/bullpen/machine", "");
    let console = machine.boot(&plan());
    assert!(console.contains("bullpen: boot failed (1) at: mkdir -p"), "{console}");
    let journal = machine.journal();
    assert!(journal[..5].contains(&"bullpen-watchdog.timer armed: 3600 s".to_owned()));
    assert!(!journal.iter().any(|line| line.contains("stop") || line.contains("agent")));
    assert_eq!(journal.last().unwrap(), "off: systemctl");
    assert!(machine.text("var/log/bullpen-boot.log").contains("boot failed"));
}

#[test]
fn an_image_without_an_agent_is_named_on_the_console() {
    let machine = Machine::new();
    let console = machine.boot(&plan());
    assert!(console.contains("bullpen: no agent in the image"), "{console}");
}

#[test]
fn the_agent_gets_the_payload_byte_for_byte() {
    let script =
        "#!/bin/bash\ncat <<'END' <<EOF\n$HOME `id` \"'\\\nEND\nEOF\r\n\tümlaut \u{1f402} \n\n";
    let json = serde_json::json!({ "preinstall": script }).to_string();
    for text in [json.as_str(), script, "END\nEND_", "", "\n", "no end of line", "x\n\n\n"] {
        let machine = Machine::with_agent(DONE);
        machine.boot(&BootPlan { payload: text.to_owned(), ..plan() });
        assert_eq!(machine.text("var/lib/bullpen/machine/user-data"), text);
        let metadata = machine.path("var/lib/bullpen/machine/user-data").metadata().unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn the_jobs_user_may_become_root_only_with_sudo() {
    const SUDOERS: &str = "etc/sudoers.d/bullpen";
    let user = Some("worker".to_owned());
    let machine = Machine::with_agent(DONE);
    machine.boot(&BootPlan { user: user.clone(), sudo: true, ..plan() });
    let passwd = machine.text("etc/passwd");
    let line = passwd.lines().find(|line| line.starts_with("worker:")).unwrap();
    let number = line.split(':').nth(2).unwrap();
    assert_eq!(machine.text(SUDOERS), format!("#{number} ALL=(ALL) NOPASSWD: ALL\n"));
    assert_eq!(machine.path(SUDOERS).metadata().unwrap().mode() & 0o777, 0o440);

    // The script removes a rule that an image built from such a machine already has.
    let machine = Machine::with_agent(DONE).with_file(SUDOERS, "worker ALL=(ALL) NOPASSWD: ALL\n");
    machine.boot(&BootPlan { user, sudo: false, ..plan() });
    assert!(!machine.path(SUDOERS).exists());
    assert_eq!(machine.journal().last().unwrap(), "off: bullpen-agent.service is done");
}

/// An image with a user in groups, and with a sudo rule for the user or for one of the groups.
fn image_with_a_user(rule: &str) -> Machine {
    Machine::with_agent(DONE)
        .with_file("etc/passwd", "root:x:0:0::/root:/bin/sh\nworker:x:1:1::/:/bin/sh\n")
        .with_file(
            "etc/group",
            "root:x:0:\nsudo:x:27:worker\nlxd:x:30:other,worker\nvideo:x:44:worker\n",
        )
        .with_file("etc/sudoers.d/90-cloud-init-users", rule)
}

#[test]
fn without_sudo_a_user_of_the_images_leaves_the_groups_that_become_root() {
    let rule = "%sudo ALL=(ALL) NOPASSWD: ALL\n";
    let user = Some("worker".to_owned());
    let machine = image_with_a_user(rule);
    machine.boot(&BootPlan { user: user.clone(), ..plan() });
    assert_eq!(
        machine.text("etc/group"),
        "root:x:0:\nsudo:x:27:\nlxd:x:30:other\nvideo:x:44:worker\n"
    );
    assert_eq!(machine.journal().last().unwrap(), "off: bullpen-agent.service is done");

    let machine = image_with_a_user(rule);
    machine.boot(&BootPlan { user, sudo: true, ..plan() });
    assert!(
        machine.text("etc/group").contains("sudo:x:27:worker\n"),
        "with sudo the user stays in the group"
    );
}

/// The script cannot undo the image's rule, so it refuses the image.
#[test]
fn without_sudo_an_image_that_lets_its_user_become_root_takes_no_jobs() {
    let machine = image_with_a_user("worker ALL=(ALL) NOPASSWD: ALL\n");
    let console = machine.boot(&BootPlan { user: Some("worker".to_owned()), ..plan() });
    assert!(console.contains("the image lets worker become root, and sudo is off"), "{console}");
    let journal = machine.journal();
    assert!(!journal.iter().any(|line| line.contains("bullpen-agent.service")), "{journal:?}");
    assert_eq!(journal.last().unwrap(), "off: systemctl");
}

#[test]
fn an_existing_user_is_kept_and_may_use_docker_only_if_the_plan_says_so() {
    let group = |members: &str| format!("root:x:0:\ndocker:x:7:{members}\n");
    for (docker, had, has) in [
        (true, "other", "other,worker"),
        (false, "other", "other"),
        // The script removes the user from a group that the image put it in.
        (false, "other,worker", "other"),
    ] {
        let machine = Machine::with_agent(DONE)
            .with_file("etc/passwd", "root:x:0:0::/root:/bin/sh\nworker:x:1:1::/:/bin/sh\n")
            .with_file("etc/group", &group(had));
        machine.boot(&BootPlan { user: Some("worker".to_owned()), docker, ..plan() });
        assert!(!machine.journal().iter().any(|line| line.contains("useradd")));
        assert_eq!(machine.text("etc/group"), group(has), "{docker}");
    }
}
