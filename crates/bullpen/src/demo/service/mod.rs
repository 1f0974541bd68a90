//! `bullpen demo`: shows the service on this machine with twenty jobs in bursts.
//!
//! The stand-in for GitHub sends signed webhooks over HTTP to the service, which runs in this
//! process as in `bullpen serve`.
//!
//! Not here: the jobs (`script`), running them (`play`), or judging and printing (`report`).

use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::pool::Blueprints;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::fresh_secret;
use bullpen_github::stand_in::Hook;
use tokio::sync::{oneshot, watch};

use super::{
    BULLPEN, DemoArgs, DemoSetup, RUNS_ON, catch_panic, end, failed, interrupted, state, write,
};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment, files};
use crate::render;
use crate::serve::{Addresses, ListenerSettings, Role, SECRET, ServeArgs, ServeOptions, serve_in};
use crate::signals::Signals;
use crate::workflow::Failure;

mod play;
mod report;
mod script;

use play::ServiceDemo;
use report::ServiceReport;
pub(super) use script::{CONFIGURATION, STACK};

/// The time limit until the pools are full again after the last job. A good demo takes a quarter of
/// it.
const WITHIN: Duration = Duration::from_secs(100);
/// How long the service may drain; after that the demo ends its machines.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);

/// Shows the service, and always cleans up.
pub(super) async fn show(
    args: &DemoArgs,
    place: &Path,
    setup: DemoSetup,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let shown = Box::pin(catch_panic(serve(args, place, &setup, signals))).await;
    let DemoSetup { runtime, stand_in, .. } = setup;
    let ended = Box::pin(end(runtime, place)).await;
    stand_in.stop().await;
    match (shown, ended) {
        (Ok(()), Ok(_)) => Ok(Exit::Done),
        (Err(failure), Ok(_)) | (Ok(()), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => Err(first.and(second)),
    }
}

/// Runs the service, and shows it from the outside.
async fn serve(
    args: &DemoArgs,
    place: &Path,
    setup: &DemoSetup,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let secret = fresh_secret();
    let (ready, is_ready) = oneshot::channel();
    let (stop, mut stopped) = watch::channel(false);
    let stopped = async { drop(stopped.wait_for(|stopped| *stopped).await) };
    // An interrupted demo has dropped the receiver.
    let ready = |addresses: &Addresses| {
        let _ = ready.send(*addresses);
    };
    let options = serve_options(setup, secret.reveal())?;
    let mut serving = pin!(serve_in(&setup.runtime, options, ready, stopped));
    let mut showing = pin!(run_jobs(args, place, setup, secret.reveal(), is_ready));
    let shown = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        served = &mut serving => return Err(ended_early(served)),
        shown = &mut showing => shown,
        () = setup.clock.sleep(WITHIN) => {
            return Err(failed(format!("the jobs did not end within {} s", WITHIN.as_secs())));
        }
    };
    if args.keep && shown.is_ok() {
        keep(serving.as_mut(), signals).await?;
    }
    stop.send_replace(true);
    tokio::select! {
        served = serving => served?,
        () = setup.clock.sleep(DRAINS_WITHIN) => {}
    }
    shown
}

/// The options of `bullpen serve`, with free ports.
fn serve_options<'a>(setup: &'a DemoSetup, secret: &str) -> Result<ServeOptions<'a>, Failure> {
    let free_port = Some(([127, 0, 0, 1], 0).into());
    let args = ServeArgs {
        webhook: free_port,
        admin: free_port,
        roles: vec![Role::Webhook, Role::Jobs, Role::Pools],
        common: CommonArgs::default(),
    };
    let environment: Environment = [(SECRET.to_owned(), secret.to_owned())].into();
    let place = ListenerSettings::of(&args, &setup.file, &environment)?;
    Ok(ServeOptions { place, common: &setup.inputs, file: &setup.file })
}

fn ended_early(served: Result<(), Failure>) -> Failure {
    served.err().unwrap_or_else(|| failed("the service ended by itself".to_owned()))
}

/// Connects the stand-in's webhooks with the service, runs the jobs and prints the report.
async fn run_jobs(
    args: &DemoArgs,
    place: &Path,
    setup: &DemoSetup,
    secret: &str,
    ready: oneshot::Receiver<Addresses>,
) -> Result<(), Failure> {
    let DemoSetup { runtime, stand_in, clock, file, inputs, .. } = setup;
    let addresses = ready.await.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let url = addresses.webhook_url().unwrap_or_default();
    let hooked = stand_in.hook(Hook { url: url.clone(), secret: Secret::new(secret), runs: true });
    hooked.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let boot = file.process_fleet.boot_delay;
    render::talk_page(&format!(
        "a stand-in for GitHub at {}, a service at {url},\na new state in {}, machines that \
         pretend to boot for {} s",
        stand_in.url(),
        state(place).display(),
        boot.as_secs_f64()
    ));
    let config = files::config(&inputs.stack)?.unwrap_or_default();
    let pools = Blueprints::of(&file.env, &config, &runtime.foundation);
    let demo = ServiceDemo { runtime, stand_in, place, clock: *clock, pools };
    let outcome = play::play(&demo).await?;
    let report = ServiceReport::new(outcome, boot, clock.monotonic());
    render::talk("");
    if args.json {
        render::json(&report.json().to_string());
    } else {
        render::page(&report.text());
    }
    if args.keep {
        print_examples(place, setup, &addresses, report.slowest_job())?;
    }
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(()) } else { Err(failed(wrong.join("; "))) }
}

/// Prints commands that inspect the running service.
fn print_examples(
    place: &Path,
    setup: &DemoSetup,
    addresses: &Addresses,
    job: Option<u64>,
) -> Result<(), Failure> {
    // In a file, because other users of this machine can read arguments, but not this directory.
    let header = place.join("authorization");
    write(&header, &format!("authorization: Bearer {}\n", setup.stand_in.token().reveal()))?;
    let (state, github) = (state(place).display().to_string(), setup.stand_in.url());
    let job = job.map_or_else(String::new, |job| job.to_string());
    render::talk_page(&format!(
        "\nThe service keeps running; Ctrl-C ends it and removes its state. Examples:\n  \
         bullpen explain {job} --state {state}\n  \
         bullpen status --state {state}\n  \
         bullpen pools --config {config} --stack {stack} --state {state}\n  \
         curl http://{admin}/metrics\n  \
         curl {github}/_stand-in/jobs -H @{header} -H 'content-type: application/json' \
         -d '{{\"repository\": \"{repository}\", \"labels\": [\"runs-on/pool=ci\"], \"script\": \
         \"echo hello\"}}'",
        admin = addresses.admin,
        config = place.join(RUNS_ON).display(),
        stack = place.join(BULLPEN).display(),
        repository = super::REPOSITORY,
        header = header.display(),
    ));
    Ok(())
}

/// Keeps the service running until a signal comes.
async fn keep(
    serving: Pin<&mut impl Future<Output = Result<(), Failure>>>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        _ = signals.next() => {
            render::talk("the demo ends its service, machines and jobs");
            Ok(())
        }
        served = serving => Err(ended_early(served)),
    }
}
