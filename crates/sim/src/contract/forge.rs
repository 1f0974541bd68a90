//! The contract of the `Forge` port.
//!
//! Not here: when a runner is deleted, or GitHub's rate limits.

use std::time::Duration;

use bullpen_core::claim::Deletion;
use bullpen_core::ids::RunnerName;
use bullpen_core::mailbox::Credential;
use bullpen_core::ports::{Forge, Runner, RunnerSpec};

use super::{Harness, answered};

/// One test per case of the forge's contract.
#[macro_export]
macro_rules! forge_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            forge,
            [
                an_unknown_runner_is_not_found,
                an_idle_runner_is_deleted_once,
                a_busy_runner_is_left_as_it_is,
                runners_are_listed_with_their_states,
                a_credential_can_be_had_again_under_the_same_name,
                a_runner_that_was_deleted_cannot_come_back_by_its_old_credential,
            ]
        );
    };
}

/// A harness that plays the runners, and the forge's own side.
pub trait ForgeHarness: Harness<Port: Forge> {
    /// A runner of this stack registers with this credential and listens; false if the forge
    /// refuses it.
    fn listen(&self, runner: &RunnerSpec, credential: &Credential) -> impl Future<Output = bool>;
    /// The forge gives the runner a job.
    fn give_job(&self, runner: &RunnerName) -> impl Future<Output = ()>;
    /// The runner's job ends; an ephemeral runner is gone with it.
    fn end_job(&self, runner: &RunnerName) -> impl Future<Output = ()>;
    /// A name with the stack's prefix.
    fn name(&self, stem: &str) -> RunnerName;
}

fn spec<H: ForgeHarness>(harness: &H, stem: &str, ephemeral: bool) -> RunnerSpec {
    let labels = vec![format!("warm-{stem}")];
    RunnerSpec { name: harness.name(stem), labels, group: None, ephemeral }
}

/// Registers a runner that listens.
async fn listening<H: ForgeHarness>(harness: &H, stem: &str, ephemeral: bool) -> RunnerName {
    let spec = spec(harness, stem, ephemeral);
    let credential = answered(harness.port().credential(&spec).await);
    assert!(harness.listen(&spec, &credential).await, "a fresh credential is refused");
    spec.name
}

/// The runner as it is listed, once listings have caught up.
async fn listed<H: ForgeHarness>(harness: &H, name: &RunnerName) -> Option<Runner> {
    harness.settle().await;
    let mut runners = answered(harness.port().runners().await);
    runners.retain(|runner| runner.name == *name);
    assert!(runners.len() <= 1, "{name} is listed {} times", runners.len());
    runners.pop()
}

/// Deleting an unknown runner answers that there is none.
pub async fn an_unknown_runner_is_not_found<H: ForgeHarness>(harness: H) {
    let unknown = harness.name("unknown");
    assert_eq!(harness.port().delete(&unknown).await, Deletion::NotFound);
}

/// The first deletion deletes, the second finds no runner.
pub async fn an_idle_runner_is_deleted_once<H: ForgeHarness>(harness: H) {
    for ephemeral in [true, false] {
        let name = listening(&harness, &format!("idle-{ephemeral}"), ephemeral).await;
        assert_eq!(harness.port().delete(&name).await, Deletion::Deleted);
        assert_eq!(harness.another_process().delete(&name).await, Deletion::NotFound);
        assert_eq!(listed(&harness, &name).await, None);
    }
}

/// A deletion never interrupts a job: while the job runs, the runner stays busy and online.
pub async fn a_busy_runner_is_left_as_it_is<H: ForgeHarness>(harness: H) {
    let name = listening(&harness, "busy", false).await;
    harness.give_job(&name).await;
    for _ in 0..3 {
        assert_eq!(harness.port().delete(&name).await, Deletion::Busy);
        harness.pass(Duration::from_secs(10)).await;
    }
    let busy = Runner { name: name.clone(), online: true, busy: true };
    assert_eq!(listed(&harness, &name).await, Some(busy));
    harness.end_job(&name).await;
    assert_eq!(harness.port().delete(&name).await, Deletion::Deleted);
}

/// Listings show every runner of the stack, more than a page of them, each as online and as busy as
/// it is.
pub async fn runners_are_listed_with_their_states<H: ForgeHarness>(harness: H) {
    let mut names = Vec::new();
    for number in 0..120 {
        names.push(listening(&harness, &format!("r-{number}"), false).await);
    }
    harness.give_job(&names[7]).await;
    for (number, name) in names.iter().enumerate() {
        if number % 40 == 7 {
            let expected = Runner { name: name.clone(), online: true, busy: number == 7 };
            assert_eq!(listed(&harness, name).await, Some(expected));
        }
    }
    let runners = answered(harness.port().runners().await);
    assert_eq!(runners.len(), names.len());
}

/// After a worker died before it used its credential, another worker gets a new credential under
/// the same name.
pub async fn a_credential_can_be_had_again_under_the_same_name<H: ForgeHarness>(harness: H) {
    let spec = spec(&harness, "again", true);
    answered(harness.port().credential(&spec).await);
    let second = answered(harness.another_process().credential(&spec).await);
    assert!(harness.listen(&spec, &second).await, "the latest credential is refused");
    assert!(listed(&harness, &spec.name).await.is_some_and(|runner| runner.online));
}

/// After the forge deleted a JIT runner (204), no job can start on it: its credential is void.
pub async fn a_runner_that_was_deleted_cannot_come_back_by_its_old_credential<H: ForgeHarness>(
    harness: H,
) {
    let spec = spec(&harness, "jit", true);
    let credential = answered(harness.port().credential(&spec).await);
    if !matches!(credential, Credential::Jit(_)) {
        // A registration token outlives the runners it made; `register-by` covers that.
        return;
    }
    assert!(harness.listen(&spec, &credential).await);
    assert_eq!(harness.port().delete(&spec.name).await, Deletion::Deleted);
    assert!(!harness.listen(&spec, &credential).await, "a deleted runner listens");
}
