//! `bullpen release`: gives the machines of requests back.
//!
//! Not here: the handshake (`bullpen_engine::release`).

use bullpen_core::ids::{InstanceId, RequestId, RunAttempt};
use bullpen_core::ports::Ports;
use bullpen_core::request::stranger::Stranger;
use bullpen_engine::progress::ProgressObserver;
use bullpen_engine::release::Released;
use bullpen_engine::release::request::{release_request, requests_of};
use serde_json::{Value, json};

use super::progress::Progress;
use super::{Failure, execute, run_command};
use crate::exit::Exit;
use crate::inputs::{self, Environment, ReleaseArgs, ReleaseInputs};
use crate::render;
use crate::runtime::{Command, GithubAccess, Runtime};

/// Runs `bullpen release`.
pub(crate) fn release(args: &ReleaseArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

async fn run(args: &ReleaseArgs, environment: &Environment) -> Result<Exit, Failure> {
    let inputs = ReleaseInputs::read(args, environment)?;
    execute(&inputs.common, environment, ReleaseCommand { inputs: &inputs, environment }).await
}

/// `bullpen release`, once its arguments are read.
struct ReleaseCommand<'a> {
    inputs: &'a ReleaseInputs,
    environment: &'a Environment,
}

impl Command for ReleaseCommand<'_> {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let requests = match &self.inputs.released {
            inputs::ReleaseTarget::Request(request) => vec![request.clone()],
            inputs::ReleaseTarget::Run(run) => {
                of_run(&runtime, &RunAttempt::new(run.to_string())).await?
            }
        };
        let released = release_all(&runtime, &requests).await?;
        warn_of_strangers(&released, self.environment);
        show(self.inputs.common.stack.json, &requests, &released);
        Ok(Exit::Done)
    }
}

async fn of_run<P: Ports>(
    runtime: &Runtime<P>,
    run: &RunAttempt,
) -> Result<Vec<RequestId>, Failure> {
    let found = requests_of(&runtime.stack, run).await;
    found.map_err(|fault| Failure::of("could not find the requests of the run", &fault))
}

/// Releases all requests at once, because each waits for its own jobs.
async fn release_all<P: Ports>(
    runtime: &Runtime<P>,
    requests: &[RequestId],
) -> Result<Released, Failure> {
    let progress = Progress::new(0);
    let tell = |event| progress.show(&event);
    let releases = requests.iter().map(|id| release_one(runtime, id, &tell));
    let mut all = Released::default();
    for one in futures_util::future::join_all(releases).await {
        let one = one?;
        all.returned.extend(one.returned);
        all.ended.extend(one.ended);
        all.waiting.extend(one.waiting);
        all.strangers.extend(one.strangers);
    }
    Ok(all)
}

/// Releases one request, and waits as long as an agent may take to acknowledge.
pub(crate) async fn release_one<P: Ports>(
    runtime: &Runtime<P>,
    id: &RequestId,
    tell: ProgressObserver<'_>,
) -> Result<Released, Failure> {
    let (stack, limits) = (&runtime.stack, &runtime.stack.limits);
    let until = stack.now().after(limits.release_acknowledgement + limits.clock_skew);
    let released = release_request(stack, id, until, tell).await;
    released.map_err(|fault| Failure::of("could not release", &fault))
}

fn stranger(stranger: &Stranger) -> Value {
    let Stranger { instance, ran } = stranger;
    json!({
        "instance": instance,
        "repository": ran.repository,
        "run": ran.run,
        "attempt": ran.attempt,
        "job": ran.job,
        "event": ran.event,
    })
}

/// Warns the run of strangers. The run is not at fault, so the command does not fail.
fn warn_of_strangers(released: &Released, environment: &Environment) {
    let in_a_workflow = environment.get("GITHUB_ACTIONS").is_some_and(|value| value == "true");
    for Stranger { instance, ran } in &released.strangers {
        let what =
            format!("GitHub started a job of another run on {instance}: {ran}; it ran no step");
        render::warning(&format!("{what}, and the machine ends"), in_a_workflow);
    }
}

fn show(json: bool, requests: &[RequestId], released: &Released) {
    let Released { returned, ended, waiting, strangers } = released;
    if json {
        let ids = |list: &[InstanceId]| json!(list);
        render::json(
            &json!({
                "requests": requests,
                "returned": ids(returned),
                "ended": ids(ended),
                "waiting": ids(waiting),
                "strangers": strangers.iter().map(stranger).collect::<Vec<_>>(),
            })
            .to_string(),
        );
        return;
    }
    let (idle, gone, busy) = (returned.len(), ended.len(), waiting.len());
    render::data(&format!("{idle} idle again, {gone} ending, {busy} still busy"));
    if busy > 0 {
        render::talk("the next `bullpen refresh` releases the machines that are still busy");
    }
}
