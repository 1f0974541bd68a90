//! Trust groups, and machines that are clean for the next owner.
//!
//! Not here: machines that are not reused (`fitness`).

use std::fs;

use crate::waiting::until;
use crate::world::World;

/// D54: a machine that ran one repository's code does not serve another repository.
#[tokio::test]
async fn a_machine_stays_with_its_repository() {
    let world = World::new().await;
    let ours = world.provision(2, "ours").await;
    world.release("ours").await;
    let line = "provision --count 2 --name theirs --json";
    let theirs = world.bullpen(line).with("GITHUB_REPOSITORY", "acme/other").run().await.json();
    assert_eq!((theirs["reused"].as_u64(), theirs["created"].as_u64()), (Some(0), Some(2)));
    let again = world.provision(2, "again").await;
    assert_eq!((again.counts(), again.ids()), ((2, 0), ours.ids()));
}

/// D54: files and processes of one owner are gone before the next owner comes.
#[tokio::test]
async fn nothing_of_one_owner_is_left_for_the_next() {
    let world = World::new().await;
    let first = world.provision(1, "first").await;
    let pid = world.path("pid");
    let litter = format!(
        "echo secret > left; mkdir -p \"$HOME/.cache\"; echo secret > \"$HOME/.cache/left\"; \
         echo secret > \"$TMPDIR/left\"; \
         setsid sh -c 'echo $$ > {0}; exec sleep 1000' > /dev/null 2>&1 & \
         while [ ! -s {0} ]; do sleep 0.02; done",
        pid.display()
    );
    world.runs_job(first.label(), &litter).await;
    let left = fs::read_to_string(&pid).expect("it was written").trim().to_owned();
    let is_alive = || {
        fs::read_to_string(format!("/proc/{left}/cmdline")).is_ok_and(|line| line.contains("sleep"))
    };
    assert!(is_alive(), "the job did leave a process");
    world.release("first").await;
    assert!(!is_alive(), "it outlived its owner");
    let second = world.provision(1, "second").await;
    assert_eq!((second.counts(), second.ids()), ((1, 0), first.ids()));
    let search = "test -z \"$(ls -A)\"; test ! -e \"$HOME/.cache\"; test ! -e \"$TMPDIR/left\"";
    world.runs_job(second.label(), search).await;
    let agent = world.machine(&first.id()).join("agent");
    let found = std::process::Command::new("grep").args(["-rl", "secret"]).arg(&agent).output();
    let found = String::from_utf8_lossy(&found.expect("grep runs").stdout).into_owned();
    assert_eq!(found, "", "what the job wrote is still on its machine");
}

/// D26, D44: a machine whose supervisor was killed is not handed out.
#[tokio::test]
async fn a_machine_that_died_while_idle_is_replaced() {
    let world = World::with(&[
        ("assignment-acknowledged", "3s"),
        ("registration", "3s"),
        ("clock-skew", "1s"),
    ])
    .await;
    let first = world.provision(1, "first").await;
    world.release("first").await;
    for process in world.processes() {
        process.kill().expect("it is ours");
    }
    until("end of its processes", async || world.processes().is_empty().then_some(())).await;
    let second = world.provision(1, "second").await;
    assert_eq!(second.counts(), (0, 1));
    assert_ne!(second.ids(), first.ids());
}
