//! Jobs that attack the service on the same host: where the service is root, where it is an
//! ordinary user, and, to show that each attack would succeed, without isolation.
//!
//! Not here: how jobs are isolated (`bullpen_agent::runner::confine`).

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use bullpen_core::job::{Conclusion as Concluded, End};
use bullpen_github::stand_in::protocol::Conclusion;
use rustix::process::geteuid;

use crate::setup::CONFIG;
use crate::waiting::until;
use crate::world::{APP_KEY, World};

/// The attacks of a job; it records each that succeeds, and waits for the test.
const ATTACKS: &str = r#"
set +e
tell() { echo "$1" >>found.new; }
: >found.new
reads() { grep -qa '' "$1" 2>/dev/null; }
writes() { { : >>"$1"; } 2>/dev/null; }
moves() { mv "$1" "$1.moved" 2>/dev/null && mv "$1.moved" "$1"; }
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

reads "$PLACE/secrets/app.pem" && tell credential
reads "$PLACE/home/.netrc" && tell home
reads "$RUN/secret" && tell 'run directory'
for file in bin/Runner.Listener run.sh .env; do
    writes "../$file" && tell program
    writes "$PLACE/tools/runner/$file" && tell 'runner directory'
done
moves ../.env && tell 'program moved'
moves "$PLACE/tools" && tell 'runner directory moved'
moves "$PLACE/bullpen" && tell service
for file in bullpen.toml runs-on.yml; do
    { writes "$PLACE/$file" || moves "$PLACE/$file"; } && tell configuration
done
[ -e ../.path ] && tell 'left in the program'
echo /evil 2>/dev/null >../.path
echo "exit" 2>/dev/null >>../bullpen-job-started.sh && tell hook
writes "$CGROUP/cgroup.procs" && tell cgroup
unshare --user --map-root-user --mount --cgroup sh -c '
    mount -t cgroup2 none /mnt && : >>"/mnt/$0/cgroup.procs"
    ' "${CGROUP##*/}" >/dev/null 2>&1 && tell 'cgroup mounted anew'
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

/// A world that jobs attack, with the files that a service may have on its host.
struct Target {
    world: World,
    /// A user that is no account.
    user: u32,
    /// The run directory of its session.
    run: PathBuf,
    /// The service's cgroup, where this host has cgroups of version 2.
    cgroup: Option<PathBuf>,
}

impl Target {
    /// `None` if the test is not root: it changes owners of files, and runs as another user.
    async fn new(isolation: &str) -> Option<Self> {
        static TARGETS: AtomicU32 = AtomicU32::new(0);
        if !geteuid().is_root() {
            return None;
        }
        let number = TARGETS.fetch_add(1, Ordering::Relaxed);
        // Not below /tmp, which is always hidden.
        let mut world = World::configured_in(Path::new("/var/lib"), CONFIG, &[]).await;
        let name = "BULLPEN_PROCESS_FLEET_ISOLATION".to_owned();
        world.environment.insert(name, isolation.to_owned());
        let user = 3_000_000 + 10 * std::process::id() + number;
        let run = PathBuf::from(format!("/run/user/{user}"));
        let cgroup = cgroup_of_version_two().map(|at| at.join(format!("bullpen-test-{user}")));
        let target = Self { world, user, run, cgroup };
        target.furnish();
        Some(target)
    }

    fn furnish(&self) {
        let path = |name: &str| self.world.path(name);
        for directory in ["home", "secrets", "tools/runner/bin"] {
            fs::create_dir_all(path(directory)).expect("a directory");
        }
        fs::create_dir_all(&self.run).expect("a directory");
        self.cgroup.iter().for_each(|at| fs::create_dir(at).expect("the test is root"));
        // Another process writes them, so that no thread's child has them open.
        for (from, to) in [(env!("CARGO_BIN_EXE_bullpen"), "bullpen"), (APP_KEY, "secrets/app.pem")]
        {
            let copied = Command::new("cp").arg(from).arg(path(to)).status();
            assert!(copied.expect("cp is there").success());
        }
        let own = path("bullpen");
        let listener = format!("#!/bin/sh\nexec {} stand-in-runner \"$@\"\n", own.display());
        for (file, text, mode) in [
            (path("tools/runner/bin/Runner.Listener"), &*listener, 0o755),
            (path("tools/runner/run.sh"), "#!/bin/sh\n", 0o755),
            (path("tools/runner/.env"), "LANG=C\n", 0o644),
            (path("home/.netrc"), "password", 0o600),
            (self.run.join("secret"), "secret", 0o600),
        ] {
            fs::write(&file, text).expect("it can be written");
            fs::set_permissions(file, fs::Permissions::from_mode(mode)).expect("it is ours");
        }
        for (name, mode) in [("", 0o755), ("home", 0o700), ("secrets/app.pem", 0o600)] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).expect("it is ours");
        }
    }

    /// Runs the world's copy of the program, as root.
    fn run_by_root(mut self) -> Self {
        self.tell_where(0);
        self
    }

    /// Runs the world's copy of the program, as an ordinary user.
    fn run_by_an_ordinary_user(mut self) -> Self {
        let places = [self.world.path(""), self.run.clone()];
        let owned = Command::new("chown")
            .arg("-R")
            .arg(format!("{0}:{0}", self.user))
            .args(places.iter().chain(&self.cgroup))
            .status();
        assert!(owned.expect("chown is there").success());
        // The test is root, and root may not open another user's ledger.
        self.world.on_files = false;
        self.tell_where(self.user);
        self
    }

    fn tell_where(&mut self, user: u32) {
        let path = |name: &str| self.world.path(name).display().to_string();
        let told = [
            ("INPUT_APP_KEY", path("secrets/app.pem")),
            ("INPUT_RUNNER_DIR", path("tools/runner")),
        ];
        (self.world.user, self.world.program) = (Some(user), self.world.path("bullpen"));
        self.world.environment.extend(told.map(|(name, value)| (name.to_owned(), value)));
    }

    fn script(&self, pid: u32) -> String {
        let Self { world, run, cgroup, .. } = self;
        let (place, state) = (world.path(""), world.state());
        let cgroup = cgroup.clone().unwrap_or_else(|| PathBuf::from("/nonexistent"));
        let variables = [
            ("PLACE", place.display().to_string()),
            ("STATE", state.display().to_string()),
            ("RUN", run.display().to_string()),
            ("CGROUP", cgroup.display().to_string()),
            ("PID", pid.to_string()),
        ];
        let lines = variables.map(|(name, value)| format!("{name}={value}\n"));
        format!("{}{ATTACKS}", lines.concat())
    }

    /// Serves two attacking jobs, one after the other on the same machine; returns the successful
    /// attacks.
    async fn attacked(&self) -> Vec<String> {
        let world = &self.world;
        let served = world.serve().await;
        let pid = served.process.child.id();
        let script = self.script(pid);
        let machines = world.state().join("machines");
        let mut found = Vec::new();
        for _ in 0..2 {
            let job = world.job("bullpen/runner=small", &script);
            let path = until("end of the attacks", async || below(&machines, "found")).await;
            let text = fs::read_to_string(&path).expect("the job wrote it");
            found.extend(text.lines().map(str::to_owned));
            fs::write(path.with_file_name("go"), "").expect("the test is root");
            assert_eq!(world.over(job).await.conclusion, Some(Conclusion::Success));
            if world.on_files {
                assert_eq!(world.settled(job).await, End::Completed(Concluded::new("success")));
            }
            assert_eq!(world.quiet().await.len(), 1, "the machine is cleaned and serves again");
        }
        let left = PathBuf::from(format!("/tmp/bullpen-left-{pid}"));
        if left.exists() {
            fs::remove_file(left).expect("the test is root");
            found.push("left in /tmp".to_owned());
        }
        found
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.run);
        self.cgroup.iter().for_each(|at| drop(fs::remove_dir(at)));
    }
}

/// The host's cgroups of version 2, if the test may create one there.
fn cgroup_of_version_two() -> Option<PathBuf> {
    let at = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(PathBuf::from);
    let at = at.into_iter().find(|at| at.join("cgroup.procs").exists())?;
    let probe = at.join(format!("bullpen-probe-{}", std::process::id()));
    // Another test may create the same directory.
    let _ = fs::create_dir(&probe);
    let is_there = probe.join("cgroup.procs").exists();
    let _ = fs::remove_dir(probe);
    is_there.then_some(at)
}

#[tokio::test]
async fn without_isolation_every_attack_succeeds_and_the_service_says_so() {
    let Some(target) = Target::new("none").await.map(Target::run_by_root) else { return };
    let found = target.attacked().await;
    let cgroup = target.cgroup.iter().map(|_| "cgroup");
    for attack in [
        "environ",
        "ledger",
        "ledger from below",
        "mailbox",
        "sockets",
        "signal",
        "processes",
        "credential",
        "home",
        "run directory",
        "program",
        "program moved",
        "runner directory",
        "runner directory moved",
        "service",
        "configuration",
        "hook",
    ]
    .into_iter()
    .chain(cgroup)
    {
        assert!(found.iter().any(|one| one == attack), "{attack} is none: {found:?}");
    }
    let doctor = target.world.run("doctor").await;
    assert!(doctor.data.contains("warning  isolation: jobs run as"), "{doctor:?}");
}

#[tokio::test]
async fn a_job_of_a_service_that_is_root_reaches_nothing_of_it() {
    let Some(target) = Target::new("required").await.map(Target::run_by_root) else { return };
    assert_eq!(target.attacked().await, [""; 0]);
    let doctor = target.world.run("doctor").await;
    let held = "isolation: jobs have a user and namespaces of their own";
    assert!(doctor.data.contains(held), "{doctor:?}");
    assert!(doctor.data.contains("warning  network: jobs share this host's network"), "{doctor:?}");
}

#[tokio::test]
async fn a_job_of_a_service_that_is_an_ordinary_user_reaches_nothing_of_it() {
    let target = Target::new("required").await.map(Target::run_by_an_ordinary_user);
    let Some(target) = target else { return };
    assert_eq!(target.attacked().await, [""; 0]);
    let doctor = target.world.run("doctor").await;
    assert!(doctor.data.contains("isolation: jobs have namespaces of their own"), "{doctor:?}");
}

/// The service alone sees a host without `unshare`.
#[tokio::test]
async fn a_service_that_cannot_hold_its_jobs_does_not_start_where_it_must() {
    let target = Target::new("required").await.map(Target::run_by_an_ordinary_user);
    let Some(mut target) = target else { return };
    let (own, without) = (target.world.path("bullpen"), target.world.path("without"));
    let text = format!(
        "#!/bin/sh\nexec /usr/bin/unshare --user --map-current-user --keep-caps --mount /bin/sh -c \
         'mount --bind /bin/false /usr/bin/unshare && exec \"$@\"' sh {} \"$@\"\n",
        own.display()
    );
    let write = "echo \"$1\" >\"$0\"; chmod 755 \"$0\"";
    let written = Command::new("/bin/sh").args(["-c", write]).arg(&without).arg(text).status();
    assert!(written.expect("there is a shell").success());
    target.world.program = without;
    let refused = target.world.run("serve --webhook 127.0.0.1:0 --admin 127.0.0.1:0").await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    let why = "isolation is required, and jobs run as the service's own user";
    assert!(refused.talk.contains(why), "{refused:?}");
    let doctor = target.world.run("doctor").await;
    assert!(doctor.data.contains("FAILED   isolation: jobs run as"), "{doctor:?}");
    target.world.program = own;
}

#[cfg(feature = "aws")]
#[tokio::test]
async fn doctor_tells_of_isolation_too_where_the_stores_are_at_aws() {
    let world = World::on_aws(CONFIG, &[]).await;
    world.run("refresh").await.exits(0);
    let doctor = world.run("doctor").await;
    for check in ["isolation: jobs run as", "limits: ", "network: "] {
        assert!(doctor.data.contains(check), "{check} is not told: {doctor:?}");
    }
}

#[tokio::test]
async fn a_machine_whose_jobs_were_held_otherwise_serves_no_more() {
    let Some(mut target) = Target::new("none").await.map(Target::run_by_root) else { return };
    let mut machines = Vec::new();
    for isolation in ["none", "required"] {
        let name = "BULLPEN_PROCESS_FLEET_ISOLATION".to_owned();
        target.world.environment.insert(name, isolation.to_owned());
        let served = target.world.serve().await;
        let job = target.world.job("bullpen/runner=small", "exit 0");
        assert_eq!(target.world.over(job).await.conclusion, Some(Conclusion::Success));
        target.world.settled(job).await;
        machines.push(target.world.quiet().await);
        served.kill().await;
    }
    assert_eq!(machines[0].len(), 1, "the machine should be used again: {machines:?}");
    assert!(machines[1].difference(&machines[0]).count() == 1, "one is new: {machines:?}");
}

#[tokio::test]
async fn a_state_that_others_can_read_is_refused_with_the_command_that_mends_it() {
    let world = World::new().await;
    let hidden = world.state();
    fs::create_dir(&hidden).expect("a directory");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o755)).expect("it is ours");
    let refused = world.run("status").await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.talk.contains(&format!("chmod 700 {}", hidden.display())), "{refused:?}");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("it is ours");
    world.run("refresh").await.exits(0);
    let ledger = hidden.join("ledger.db");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let refused = world.run("status").await;
    assert!(refused.talk.contains(&format!("chmod 600 {}", ledger.display())), "{refused:?}");
    fs::set_permissions(&ledger, fs::Permissions::from_mode(0o600)).expect("it is ours");
    world.run("status").await.exits(0);
}
