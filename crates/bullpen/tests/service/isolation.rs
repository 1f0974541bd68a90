//! Jobs that try to reach the service whose host they share: where the service is root, where it is an
//! ordinary user, and, to show that each attack would succeed, where nothing holds them.
//!
//! Not here: how jobs are held (`bullpen_agent::runner::confine`).

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;

use crate::stage::{APP_KEY, Stage};
use crate::waiting::until;

/// What a job tries; it notes each attack that works, and waits to be let go.
const ATTACKS: &str = r#"
set +e
tell() { echo "$1" >>found.new; }
: >found.new
reads() { cat "$1" >/dev/null 2>&1; }
grep -qa 'it is a secret' "/proc/$PID/environ" 2>/dev/null && tell environ
reads "$STATE/ledger.db" && tell ledger
reads "$STATE/mailbox.db" && tell mailbox
for up in .. ../.. ../../.. ../../../.. ../../../../.. ../../../../../..; do
    reads "$up/ledger.db" && tell 'ledger from below'
done
for open in /proc/self/fd/* /proc/1/cwd /proc/1/root "/proc/$PPID/cwd"; do
    for up in . .. ../.. ../../.. ../../../.. ../../../../..; do
        reads "$open/$up/ledger.db" && tell 'ledger by an open file'
    done
done
umount -l "$STATE" 2>/dev/null
reads "$STATE/ledger.db" && tell 'ledger uncovered'
unshare --user --map-root-user --mount sh -c 'umount -l "$0"; umount -l /tmp; cat "$0/ledger.db"' \
    "$STATE" >/dev/null 2>&1 && tell 'ledger uncovered in a namespace'
python3 - "$STATE/wake" <<'PYTHON' 2>/dev/null && tell sockets
import os, socket, sys
ring = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
sockets = [e.path for e in os.scandir(sys.argv[1]) if not e.is_dir() and "." not in e.name]
for path in sockets:
    ring.sendto(b"wake up!", path)
sys.exit(0 if sockets else 1)
PYTHON
kill -0 "$PID" 2>/dev/null && grep -qa serve "/proc/$PID/cmdline" && tell signal
word=--web
grep -qa -e "${word}hook" /proc/[0-9]*/cmdline 2>/dev/null && tell processes
grep -qa JITCONFIG /proc/1/environ 2>/dev/null && tell 'first process'
: 2>/dev/null >>../bin/Runner.Listener && tell program
echo left >"/tmp/bullpen-left-$PID"
mv found.new found
until [ -e go ]; do sleep 0.05; done
"#;

/// The file of this name below a directory.
fn below(directory: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> =
        fs::read_dir(directory).ok()?.flatten().map(|entry| entry.path()).collect();
    let here = entries.iter().find(|path| path.ends_with(name)).cloned();
    let is_real = |path: &&PathBuf| path.is_dir() && !path.is_symlink();
    here.or_else(|| entries.iter().filter(is_real).find_map(|path| below(path, name)))
}

/// Serves two jobs that attack, one after the other on the same machine, and says what worked.
async fn attacked(stage: &Stage) -> Vec<String> {
    let served = stage.serve().await;
    let pid = served.process.child.id();
    let hidden = stage.state();
    let script = format!("PID={pid}\nSTATE={}\n{ATTACKS}", hidden.display());
    let mut found = Vec::new();
    for _ in 0..2 {
        let job = stage.job("bullpen/runner=small", &script);
        let path =
            until("end of the attacks", async || below(&hidden.join("machines"), "found")).await;
        let text = fs::read_to_string(&path).expect("the job wrote it");
        found.extend(text.lines().map(str::to_owned));
        fs::write(path.with_file_name("go"), "").expect("the test is root");
        assert_eq!(stage.over(job).await.conclusion, Some(Conclusion::Success));
        if stage.on_files {
            assert_eq!(stage.settled(job).await, End::Completed(Concluded::new("success")));
        }
        assert_eq!(stage.quiet().await.len(), 1, "the machine is cleaned and serves again");
    }
    let left = PathBuf::from(format!("/tmp/bullpen-left-{pid}"));
    if left.exists() {
        fs::remove_file(left).expect("the test is root");
        found.push("left in /tmp".to_owned());
    }
    found
}

fn with_isolation(mut stage: Stage, isolation: &str) -> Stage {
    let name = "BULLPEN_PROCESS_FLEET_ISOLATION".to_owned();
    stage.environment.insert(name, isolation.to_owned());
    stage
}

/// Becomes an ordinary user, with a copy of the program that it can reach.
fn as_ordinary_user(mut stage: Stage) -> Stage {
    let user = 3_000_000 + std::process::id();
    let (program, key) = (stage.path("bullpen"), stage.path("app.pem"));
    // Written by another process, so that no thread's child holds it open.
    for (from, to) in [(env!("CARGO_BIN_EXE_bullpen"), &program), (APP_KEY, &key)] {
        let copied = Command::new("cp").arg(from).arg(to).status();
        assert!(copied.expect("cp is there").success());
    }
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).expect("the test is root");
    stage.environment.insert("INPUT_APP_KEY".to_owned(), key.display().to_string());
    chown(stage.path(""), Some(user), Some(user)).expect("the test is root");
    stage.user = Some((user, program));
    // The test is root, and another user's ledger is not for root to open.
    stage.on_files = false;
    stage
}

#[tokio::test]
async fn without_isolation_every_attack_succeeds_and_the_service_says_so() {
    let stage = with_isolation(Stage::new().await, "none");
    let found = attacked(&stage).await;
    for attack in ["environ", "ledger", "mailbox", "sockets", "signal", "processes", "program"] {
        assert!(found.iter().any(|one| one == attack), "{attack} is none: {found:?}");
    }
    assert!(found.iter().any(|one| one == "ledger from below"), "{found:?}");
    let doctor = stage.run("doctor").await;
    assert!(doctor.data.contains("warning  isolation: jobs run as"), "{doctor:?}");
}

#[tokio::test]
async fn a_job_of_a_service_that_is_root_reaches_nothing_of_it() {
    let stage = with_isolation(Stage::new().await, "required");
    assert_eq!(attacked(&stage).await, [""; 0]);
    let doctor = stage.run("doctor").await;
    let held = "isolation: jobs have a user and namespaces of their own";
    assert!(doctor.data.contains(held), "{doctor:?}");
}

#[tokio::test]
async fn a_job_of_a_service_that_is_an_ordinary_user_reaches_nothing_of_it() {
    let stage = as_ordinary_user(with_isolation(Stage::new().await, "required"));
    assert_eq!(attacked(&stage).await, [""; 0]);
    let doctor = stage.run("doctor").await;
    assert!(doctor.data.contains("isolation: jobs have namespaces of their own"), "{doctor:?}");
}

/// What must be isolated and cannot be is refused; a state that others can read is, too.
#[tokio::test]
async fn a_state_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let stage = Stage::new().await;
    let hidden = stage.state();
    fs::create_dir(&hidden).expect("a directory");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let refused = stage.run("status").await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.talk.contains(&format!("chmod 700 {}", hidden.display())), "{refused:?}");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("it is ours");
    stage.run("refresh").await.exits(0);
    let ledger = hidden.join("ledger.db");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let refused = stage.run("status").await;
    assert!(refused.talk.contains(&format!("chmod 600 {}", ledger.display())), "{refused:?}");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o600)).expect("it is ours");
    stage.run("status").await.exits(0);
}
