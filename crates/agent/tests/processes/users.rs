//! Tests of jobs with their own user: their identity, and that none of their files and processes
//! outlives their owner.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use bullpen_agent::runner::tree;
use bullpen_agent::runner::user::User;
use bullpen_core::mailbox::{Credential, Secret, SignalKind};

use crate::place::{Instance, Pipe};

/// A job that reports its user, and leaves files everywhere and a process without a mark.
const JOB: &str = r#"
echo "$(id -u):$(id -g):$USER:$HOME" >"$BASE/out/who"
cat "$BASE/state/listener.json" >"$BASE/out/state"
mv "$BASE/runner/bin" "$BASE/runner/moved" 2>>"$BASE/out/refused"
echo left | tee "$HOME/.secret" "/tmp/bullpen-$(id -u)" "$BASE/runner/.env" >left-behind
env -i setsid tail -f /dev/null &
until [ -e "/proc/$!/cmdline" ]; do :; done
echo "$!" >"$BASE/out/escaped"
"#;

/// A user that no other process has, not even another run of this test.
fn jobs_user(home: PathBuf) -> User {
    let id = 1_000_000 + std::process::id();
    User { name: String::from("jobs-user"), uid: id, gid: id, groups: Vec::new(), home }
}

/// Makes a directory with this mode, for example a mode that lets every user enter or write.
fn open(path: &Path, mode: u32) {
    fs::create_dir_all(path).expect("a directory");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

/// Makes the machine's directories for this user, with a container engine that only records calls.
fn lay_out(base: &Path, user: &User) {
    open(base, 0o711);
    open(&base.join("out"), 0o777);
    open(&base.join("state"), 0o700);
    for directory in ["runner/bin", "programs"] {
        fs::create_dir_all(base.join(directory)).expect("a directory");
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processes/Runner.Listener");
    // `cp` writes the file, so that no other thread's child inherits it open for writing.
    let copied = Command::new("cp").args([program, base.join("runner/bin")]).status();
    assert!(copied.expect("cp is there").success());
    open(&base.join("runner"), 0o1775);
    chown(base.join("runner"), None, Some(user.gid)).expect("the test is root");
    let docker = base.join("programs/docker");
    fs::write(&docker, format!("#!/bin/sh\necho \"$@\" >>{}\n", base.join("docker").display()))
        .expect("it can be written");
    open_file(&docker);
    fs::create_dir_all(&user.home).expect("a directory");
    fs::write(user.home.join("prepared"), "").expect("it can be written");
    user.own(&user.home).expect("the test is root");
    let noted = r#"{"v":"1","becomes_root":false,"images":[]}"#;
    fs::write(base.join("state/home.noted"), noted).expect("it can be written");
    fs::write(base.join("state/home.stamp"), "").expect("it can be written");
}

fn open_file(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

#[tokio::test]
async fn what_a_user_of_its_own_did_is_undone_wherever_it_was() {
    if !rustix::process::geteuid().is_root() {
        return; // Only root can change its user; the gate runs this as root.
    }
    // Like machines on EC2: cleaning removes the user's files from directories of temporary files.
    let directory = tempfile::tempdir_in("/var/lib").expect("the test is root");
    let base = directory.path();
    let user = jobs_user(base.join("home"));
    lay_out(base, &user);
    let script = base.join("job.sh");
    fs::write(&script, JOB.replace("$BASE", &base.to_string_lossy())).expect("it can be written");
    let mut control = Pipe::new(&base.join("runner/control"));
    user.own(&base.join("runner/control")).expect("the test is root");
    let mut instance = Instance::at(base);
    instance.user = Some(user.clone());
    instance.programs = Some(base.join("programs"));
    instance
        .during(async {
            instance.assign(1, Some(Credential::Jit(Secret::new("jit")))).await;
            control.say("listen");
            instance.signal(SignalKind::Registered, 1).await;
            control.say(&format!("job build {}", script.display()));
            instance.signal(SignalKind::JobStarted, 1).await;
            let done =
                |_: &_| fs::read_to_string(base.join("out/escaped")).ok()?.trim().parse().ok();
            let escaped: i32 = instance.until("job's end", done).await;
            let escaped = tree::Identity::of(escaped).expect("it runs");
            instance.stop(1).await;
            instance.signal(SignalKind::Removed, 1).await;
            assert!(!escaped.is_alive(), "the agent finds it by its user");
        })
        .await;
    let (id, home) = (user.uid, user.home.display());
    assert_eq!(instance.text("out/who").trim(), format!("{id}:{id}:jobs-user:{home}"));
    assert_eq!(instance.text("out/state"), "", "jobs must not read the agent's files");
    assert!(instance.text("out/refused").contains("mv:"), "jobs must not replace the program");
    assert!(instance.path("runner/bin/Runner.Listener").exists());
    for left in ["home/.secret", "runner/.env", "runner/_work/left-behind", "runner/.runner"] {
        assert!(!instance.path(left).exists(), "{left}");
    }
    assert!(!Path::new(&format!("/tmp/bullpen-{id}")).exists());
    assert!(instance.path("home/prepared").exists());
    assert!(instance.text("docker").starts_with("ps --all"), "{}", instance.text("docker"));
    assert_eq!(tree::kill_of_user(id).expect("this is Linux"), 0);
}
