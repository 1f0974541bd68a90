//! Tests of the agent with the stand-in runner: registration, jobs, ends, and an agent that dies.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use bullpen_agent::machine::Isolation;
use bullpen_agent::runner::Runner as _;
use bullpen_agent::runner::confine::Confinement;
use bullpen_agent::runner::process::EndGrace;
use bullpen_agent::runner::tree;
use bullpen_core::mailbox::{AgentPhase, Beat, Credential, SYSTEMIC, Secret, SignalKind};

use crate::place::{Instance, Pipe};

const SECRET: &str = "s3cr3t-credential";

fn token(text: &str) -> Credential {
    Credential::RegistrationToken(Secret::new(text))
}

fn laid_out() -> (tempfile::TempDir, Pipe) {
    let directory = tempfile::tempdir().expect("a directory");
    Instance::lay_out(directory.path());
    let control = Pipe::new(&directory.path().join("runner/control"));
    (directory, control)
}

/// The arguments of every process on the machine.
fn arguments() -> String {
    let processes = fs::read_dir("/proc").expect("this is Linux");
    let read = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    let all: Vec<u8> = processes.filter_map(Result::ok).flat_map(read).collect();
    String::from_utf8_lossy(&all).into_owned()
}

/// A job that records its environment, leaves files and a process behind, and waits for `go`.
const JOB: &str = r#"
env >"$BASE/job.env"
tr '\0' '\n' </proc/$PPID/cmdline >"$BASE/parent.cmdline"
echo left >left-behind
echo left >"$TMPDIR/left-behind"
setsid bash -c 'read line <>"$BASE/never"' &
read line <>"$BASE/go"
echo "$line" >"$BASE/job.done"
"#;

fn job(directory: &Path) -> (String, Pipe) {
    let path = directory.join("job.sh");
    fs::write(&path, JOB.replace("$BASE", &directory.to_string_lossy()))
        .expect("it can be written");
    let go = Pipe::new(&directory.join("go"));
    drop(Pipe::new(&directory.join("never")));
    (path.to_string_lossy().into_owned(), go)
}

#[tokio::test]
async fn a_runner_registers_runs_a_job_stops_and_is_cleaned_away() {
    let (directory, mut control) = laid_out();
    let (script, mut go) = job(directory.path());
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.signal(SignalKind::WarmUpOk, 0).await;
            instance.assign(1, Some(token(SECRET))).await;
            control.say("listen");
            assert_eq!(instance.signal(SignalKind::Registered, 1).await.detail, "17");
            control.say(&format!("job build {script}"));
            assert_eq!(instance.signal(SignalKind::JobStarted, 1).await.detail, "build");
            assert!(!instance.text("state/listener.json").contains(SECRET));
            assert!(!arguments().contains(SECRET));
            go.say("done");
            let waiting = |beat: &Beat| beat.phase == AgentPhase::Listening;
            instance.until("end of the job", |report| report.beat.clone().filter(waiting)).await;
            instance.stop(2).await;
            instance.signal(SignalKind::Removed, 2).await;
        })
        .await;
    let given = "configure name=bp-i-1-1 labels=warm-1.1.a group=ci token=17\nrun jit=0\n";
    assert_eq!(instance.text("runner/given"), given);
    assert_eq!(instance.text("job.done"), "done\n");
    assert!(!instance.text("job.env").contains(SECRET) && !instance.text("job.env").is_empty());
    assert!(!instance.text("parent.cmdline").contains(SECRET));
    assert_eq!(tree::marked(&instance.mark()).unwrap(), [], "the job's processes are gone");
    for directory in ["runner/_work", "temp"] {
        assert_eq!(fs::read_dir(instance.path(directory)).unwrap().count(), 0, "{directory}");
    }
    for file in ["runner/.runner", "state/listener.json", "state/listener.log"] {
        assert!(!instance.path(file).exists(), "{file}");
    }
}

#[tokio::test]
async fn a_machine_whose_jobs_could_become_root_is_not_clean_after_one() {
    let (directory, _control) = laid_out();
    let mut instance = Instance::at(directory.path());
    let held = |groups: &[&str]| Confinement {
        isolation: Isolation { namespaces: true, ..Isolation::default() },
        root: instance.path("runner"),
        temp: instance.path("temp"),
        state: instance.path("state"),
        programs: Vec::new(),
        groups: groups.iter().map(|name| (*name).to_owned()).collect(),
    };
    let (docker, video) = (held(&["video", "docker"]), held(&["video"]));
    instance.confinement = Some(docker);
    instance.runner().clean().await.expect("no job ran yet");
    let listener = instance.path("state/listener.json");
    fs::write(&listener, "").expect("it can be written");
    let error = instance.runner().clean().await.expect_err("an image may be left").to_string();
    assert!(error.contains("group docker") && listener.exists(), "{error}");
    instance.confinement = Some(video);
    instance.runner().clean().await.expect("nothing is left");
    assert!(!listener.exists());
}

#[tokio::test]
async fn a_jit_runner_that_ends_by_itself_is_reported() {
    let (directory, mut control) = laid_out();
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.assign(1, Some(Credential::Jit(Secret::new(SECRET)))).await;
            control.say("listen");
            instance.signal(SignalKind::Registered, 1).await;
            assert!(!instance.text("state/listener.json").contains(SECRET));
            assert!(!arguments().contains(SECRET));
            fs::write(instance.path("job.sh"), "exit 1\n").unwrap();
            control.say(&format!("job quick {}", instance.path("job.sh").display()));
            control.say("exit 0");
            let ended = instance.signal(SignalKind::ListenerEnded, 1).await;
            assert_eq!(ended.detail, "exit 0 after 1 jobs");
        })
        .await;
}

#[tokio::test]
async fn a_registration_that_is_gone_is_reported() {
    let (directory, mut control) = laid_out();
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.assign(1, Some(token(SECRET))).await;
            control.say("listen");
            instance.signal(SignalKind::Registered, 1).await;
            control.say("gone");
            let ended = instance.signal(SignalKind::ListenerEnded, 1).await;
            assert!(ended.detail.contains("no longer exists on the server"), "{ended:?}");
            instance.stop(2).await;
            instance.signal(SignalKind::Removed, 2).await;
            instance.assign(3, Some(token(SECRET))).await;
            control.say("listen");
            instance.signal(SignalKind::Registered, 3).await;
        })
        .await;
}

#[tokio::test]
async fn a_refusal_of_githubs_is_systemic_whether_it_comes_sooner_or_later() {
    let (directory, mut control) = laid_out();
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.assign(1, Some(token("refused"))).await;
            let failed = instance.signal(SignalKind::RegistrationFailed, 1).await;
            assert!(failed.detail.starts_with(SYSTEMIC), "{failed:?}");
            instance.stop(2).await;
            instance.signal(SignalKind::Removed, 2).await;
            instance.assign(3, Some(token(SECRET))).await;
            control.say("unauthorized");
            let failed = instance.signal(SignalKind::RegistrationFailed, 3).await;
            assert!(failed.detail.starts_with(SYSTEMIC), "{failed:?}");
        })
        .await;
}

#[tokio::test]
async fn a_runner_program_that_is_missing_is_the_machines_own_fault() {
    let (directory, _control) = laid_out();
    fs::remove_file(directory.path().join("runner/bin/Runner.Listener")).unwrap();
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.assign(1, Some(token(SECRET))).await;
            let failed = instance.signal(SignalKind::RegistrationFailed, 1).await;
            assert!(!failed.detail.starts_with(SYSTEMIC), "{failed:?}");
        })
        .await;
}

#[tokio::test]
async fn a_listener_that_ignores_signals_is_killed() {
    let (directory, mut control) = laid_out();
    let mut instance = Instance::at(directory.path());
    let short = Duration::from_millis(100);
    instance.patience = EndGrace { interrupt: short, terminate: short, ..EndGrace::DEFAULT };
    instance
        .during(async {
            instance.assign(1, Some(token(SECRET))).await;
            control.say("deaf");
            control.say("listen");
            instance.signal(SignalKind::Registered, 1).await;
            instance.stop(2).await;
            instance.signal(SignalKind::Removed, 2).await;
        })
        .await;
    assert_eq!(tree::marked(&instance.mark()).unwrap(), []);
}

#[tokio::test]
async fn a_registration_that_a_dead_agent_left_half_done_is_done_again() {
    let (directory, mut control) = laid_out();
    fs::write(directory.path().join("runner/.runner"), "{}").unwrap();
    let instance = Instance::at(directory.path());
    instance
        .during(async {
            instance.assign(1, Some(token(SECRET))).await;
            control.say("listen");
            instance.signal(SignalKind::Registered, 1).await;
        })
        .await;
}

/// The variable with the directory of the agent that a test kills.
const DOOMED: &str = "BULLPEN_TEST_DOOMED_AGENT";

/// Not a separate test: the next test starts it as another process and kills it.
#[tokio::test]
async fn doomed_agent() {
    #[expect(clippy::disallowed_methods, reason = "tells a test's other process what to do")]
    let Some(directory) = std::env::var_os(DOOMED) else { return };
    let instance = Instance::at(Path::new(&directory));
    instance
        .during(async {
            instance.assign(1, Some(token(SECRET))).await;
            instance.signal(SignalKind::JobStarted, 1).await;
            writeln!(std::io::stdout(), "busy").unwrap();
            std::future::pending::<()>().await;
        })
        .await;
}

#[tokio::test]
async fn the_next_agent_adopts_the_job_of_one_that_was_killed() {
    let (directory, mut control) = laid_out();
    let (script, mut go) = job(directory.path());
    control.say("listen");
    control.say(&format!("job build {script}"));
    let mut doomed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "runners::doomed_agent", "--nocapture"])
        .env(DOOMED, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(doomed.stdout.take().unwrap());
    assert!(output.lines().map_while(Result::ok).any(|line| line.ends_with("busy")));
    doomed.kill().unwrap();
    doomed.wait().unwrap();

    let instance = Instance::at(directory.path());
    instance
        .during(async {
            // By now the control plane has removed the credential from the inbox.
            instance.assign(1, None).await;
            instance.signal(SignalKind::Registered, 1).await;
            assert_eq!(instance.signal(SignalKind::JobStarted, 1).await.detail, "build");
            instance.stop(2).await;
            assert_eq!(instance.report().beat.unwrap().phase, AgentPhase::Busy);
            assert!(!instance.path("job.done").exists());
            go.say("survived");
            instance.signal(SignalKind::Removed, 2).await;
        })
        .await;
    assert_eq!(instance.text("job.done"), "survived\n");
    assert_eq!(instance.text("runner/given").matches("run jit").count(), 1);
    assert_eq!(tree::marked(&instance.mark()).unwrap(), []);
}
