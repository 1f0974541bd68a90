//! The stand-in runner program against the stand-in server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bullpen_agent::runner::tree;
use bullpen_core::mailbox::Secret;
use bullpen_github::stand_in::Outage;
use bullpen_github::stand_in::protocol::{Conclusion, JobOrder};
use rustix::process::Signal;

use crate::github::Forge;
use crate::program::Program;
use crate::tool::act;
use crate::waiting::until;

const LISTENING: &str = "Z: Listening for Jobs\n";
const GONE: &str = "The runner no longer exists on the server.";

/// A runner program's directory.
struct Runner {
    directory: tempfile::TempDir,
}

impl Runner {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a directory") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    fn mark(&self) -> String {
        self.directory.path().to_string_lossy().into_owned()
    }

    fn start(&self, arguments: &[&str], inputs: &[(&str, &str)]) -> Program {
        fs::create_dir_all(self.path("")).expect("a directory");
        let mut environment = BTreeMap::from([
            (String::from("PATH"), String::from("/usr/bin:/bin")),
            (String::from(tree::MARK), self.mark()),
        ]);
        for (name, value) in inputs {
            environment.insert(format!("ACTIONS_RUNNER_INPUT_{name}"), (*value).to_owned());
        }
        let output = self.directory.path().join(format!("{}.log", arguments[0]));
        let arguments = [&["stand-in-runner"], arguments].concat();
        Program::start(&arguments, &self.path(""), &environment, &output)
    }

    /// Configures the program as the agent does.
    async fn configure(&self, forge: &Forge, token: &Secret) -> (Option<i32>, String) {
        let flags =
            ["configure", "--unattended", "--replace", "--disableupdate", "--no-default-labels"];
        let url = forge.url();
        let inputs = [
            ("URL", url.as_str()),
            ("NAME", "bp-1"),
            ("LABELS", "warm"),
            ("WORK", "_work"),
            ("TOKEN", token.reveal()),
        ];
        let mut program = self.start(&flags, &inputs);
        (program.ends().await, program.said())
    }

    /// Configures the program, starts it, and waits until it listens.
    async fn listening(&self, forge: &Forge) -> Program {
        let (code, said) = self.configure(forge, &forge.registration_token().await).await;
        assert_eq!(code, Some(0), "{said}");
        let mut program = self.start(&["run"], &[]);
        program.says(LISTENING).await;
        forge.waits_for_message().await;
        program
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // A failed test leaves no process behind.
        let _ = tree::kill_marked(&self.mark());
    }
}

#[tokio::test]
async fn a_configured_runner_runs_jobs_until_it_is_interrupted_and_is_removed_by_token() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let job = forge.job("warm", "build (x: y)", "env >seen; echo on whose output");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    let said = program.says("Z: Job build (x: y) completed with result: Succeeded\n").await;
    assert!(said.contains("Z: Running job: build (x: y)\n"), "{said}");
    assert!(!said.contains("on whose output"), "{said}");
    let seen = fs::read_to_string(runner.path("_work/seen")).expect("the script has run");
    for line in ["OF_THE_JOB=yes", "GITHUB_REPOSITORY=acme/app", "RUNNER_NAME=bp-1"] {
        assert!(seen.lines().any(|it| it == line), "{line} in {seen}");
    }
    assert!(!seen.contains("ACTIONS_RUNNER_INPUT"), "{seen}");
    program.signal(Signal::INT);
    assert_eq!(program.ends().await, Some(0));
    assert!(program.said().contains("Exiting..."));
    assert!(!forge.stand_in.runners()[0].online, "registered, and offline");
    let token = forge.removal_token().await;
    let mut remove = runner.start(&["remove"], &[("TOKEN", token.reveal())]);
    assert_eq!(remove.ends().await, Some(0), "{}", remove.said());
    assert_eq!(forge.stand_in.runners(), []);
    assert!(!runner.path(".runner").exists() && !runner.path(".credentials").exists());
}

#[tokio::test]
async fn a_failing_job_fails_and_the_next_one_runs() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let failing = forge.job("warm", "one", "false\ntouch went-on");
    assert_eq!(forge.over(failing).await, Some(Conclusion::Failure));
    program.says("Z: Job one completed with result: Failed\n").await;
    assert!(!runner.path("_work/went-on").exists());
    let next = forge.job("warm", "two", "true");
    assert_eq!(forge.over(next).await, Some(Conclusion::Success));
}

/// A job of a workflow: act reads the file, runs the job of that name, and reports its result.
#[tokio::test]
async fn a_workflow_is_handed_to_act_and_its_result_comes_back() {
    const WORKFLOW: &str = "\
        {on: push, jobs: {\
         good: {runs-on: warm, steps: [{run: 'echo $RUNNER_NAME > $MARKED'}]}, \
         bad: {runs-on: warm, steps: [{run: exit 3}]}}}";
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let (home, marked) = (runner.path("home"), runner.path("marked"));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let order = |name: &str| JobOrder {
        repository: String::from("acme/app"),
        labels: vec![String::from("warm")],
        name: Some(name.to_owned()),
        workflow: Some(String::from(WORKFLOW)),
        env: [("BULLPEN_ACT", text(&act())), ("HOME", text(&home)), ("MARKED", text(&marked))]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
        ..JobOrder::default()
    };
    let bad = forge.stand_in.submit(order("bad")).id;
    assert_eq!(forge.over(bad).await, Some(Conclusion::Failure));
    assert!(!marked.exists(), "only the job of that name is run");
    let good = forge.stand_in.submit(order("good")).id;
    let log = runner.path(&format!("_diag/Job_{good}.log"));
    let conclusion = forge.over(good).await;
    let log = fs::read_to_string(log).expect("act said something");
    assert_eq!(conclusion, Some(Conclusion::Success), "{log}");
    assert_eq!(fs::read_to_string(marked).expect("the step has run").trim(), "bp-1");
    program.says("Z: Job good completed with result: Succeeded\n").await;
}

#[tokio::test]
async fn a_cancelled_job_is_ended_with_all_it_started() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let job = forge.job("warm", "long", "sleep 1000 &\necho $! >pid.new; mv pid.new pid\nwait");
    let pid = async || fs::read_to_string(runner.path("_work/pid")).ok();
    let pid: i32 = until("child", pid).await.trim().parse().expect("a number");
    let child = tree::Identity::of(pid).expect("it runs");
    assert!(forge.stand_in.cancel(job));
    assert_eq!(forge.over(job).await, Some(Conclusion::Cancelled));
    program.says("Z: Job long completed with result: Canceled\n").await;
    until("end of the child", async || (!child.is_alive()).then_some(())).await;
    assert!(program.is_alive());
}

#[tokio::test]
async fn a_signal_cancels_the_job_and_ends_the_program() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let job = forge.job("warm", "long", "sleep 1000");
    program.says("Z: Running job: long\n").await;
    program.signal(Signal::TERM);
    assert_eq!(program.ends().await, Some(0));
    assert_eq!(forge.over(job).await, Some(Conclusion::Cancelled));
    assert_eq!(tree::marked(&runner.mark()).expect("this is Linux"), []);
}

#[tokio::test]
async fn a_jit_runner_serves_one_job_and_ends() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let (id, config) = forge.jit("bp-jit", "self-hosted").await;
    let mut program = runner.start(&["run"], &[("JITCONFIG", config.reveal())]);
    program.says(LISTENING).await;
    let settings = fs::read_to_string(runner.path(".runner")).expect("it is unpacked");
    assert!(settings.contains(&format!("\"AgentId\":\"{id}\"")), "{settings}");
    let job = forge.job("self-hosted", "only", "env >seen");
    assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    assert_eq!(program.ends().await, Some(0), "{}", program.said());
    assert_eq!(forge.stand_in.runners(), []);
    assert!(!runner.path(".runner").exists());
    let seen = fs::read_to_string(runner.path("_work/seen")).expect("the script has run");
    assert!(!seen.contains(config.reveal()), "a job sees no credential");
    let mut again = runner.start(&["run"], &[("JITCONFIG", config.reveal())]);
    assert_eq!(again.ends().await, Some(1), "a configuration is good for once");
}

#[tokio::test]
async fn a_deleted_runner_ends() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    forge.delete("bp-1").await;
    assert_eq!(program.ends().await, Some(0));
    assert!(program.said().contains(GONE), "{}", program.said());
    assert!(!runner.path(".runner").exists());
}

#[tokio::test]
async fn an_outage_is_survived_with_the_job_in_hand() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    for outage in [Outage::Drop, Outage::Unavailable] {
        let script = "until [ -e go ]; do sleep 0.05; done; rm go; touch done";
        let job = forge.job("warm", "patient", script);
        forge.runs(job).await;
        forge.stand_in.pull(|levers| levers.outage = Some(outage));
        until("work directory", async || fs::write(runner.path("_work/go"), "").ok()).await;
        let done = runner.path("_work/done");
        until("end of the script", async || fs::remove_file(&done).ok()).await;
        program.says("Runner connect error: ").await;
        forge.stand_in.pull(|levers| levers.outage = None);
        assert_eq!(forge.over(job).await, Some(Conclusion::Success));
    }
    program.says("Runner reconnected.").await;
}

#[tokio::test]
async fn a_server_that_comes_back_without_its_memory_is_believed() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let mut program = runner.listening(&forge).await;
    let address = forge.stand_in.address();
    forge.stand_in.stop().await;
    let said = program.says("Runner connect error: ").await;
    assert!(!said.contains(GONE), "{said}");
    let _back = Forge::at(address).await;
    assert_eq!(program.ends().await, Some(0));
    assert!(program.said().contains(GONE), "{}", program.said());
}

#[tokio::test]
async fn a_credential_that_is_refused_is_told_in_the_official_words() {
    let (forge, runner) = (Forge::new().await, Runner::new());
    let (code, said) = runner.configure(&forge, &Secret::new("made-up")).await;
    assert_eq!(code, Some(1));
    assert!(said.contains("Http response code: Unauthorized from 'POST http://"), "{said}");
    assert!(!said.contains("made-up"), "{said}");
    let token = forge.registration_token().await;
    let mut unconfigured = runner.start(&["run"], &[]);
    assert_eq!(unconfigured.ends().await, Some(1));
    assert!(unconfigured.said().contains("Not configured"), "{}", unconfigured.said());
    assert_eq!(runner.configure(&forge, &token).await.0, Some(0));
    let (code, said) = runner.configure(&forge, &token).await;
    assert_eq!((code, said.contains("already configured")), (Some(1), true), "{said}");
    let mut remove = runner.start(&["remove"], &[("TOKEN", token.reveal())]);
    assert_eq!(remove.ends().await, Some(1), "a registration token removes nothing");
    assert_eq!(forge.stand_in.runners().len(), 1);
    forge.delete("bp-1").await;
    let mut deleted = runner.start(&["run"], &[]);
    assert_eq!(deleted.ends().await, Some(1));
    assert!(deleted.said().contains("registration has been deleted"), "{}", deleted.said());
}
