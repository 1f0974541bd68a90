//! `bullpen demo`: the service on this machine, with twenty jobs in bursts.
//!
//! GitHub's stand-in sends signed webhooks over HTTP to the service, which runs in this process as
//! `bullpen serve` would.
//!
//! Not here: what the jobs are (`script`), going through them (`play`), or telling (`report`).

use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use bullpen_core::mailbox::Secret;
use bullpen_core::pool::Blueprints;
use bullpen_core::ports::Clock as _;
use bullpen_embedded::system::fresh_secret;
use bullpen_github::stand_in::Hook;
use tokio::sync::{oneshot, watch};

use super::{BULLPEN, DemoArgs, Opened, RUNS_ON, defect, end, failed, interrupted, state, write};
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment, files};
use crate::render;
use crate::serve::{Addresses, ListenerSettings, Role, SECRET, ServeArgs, ServeOptions, serve_in};
use crate::signals::Signals;
use crate::workflow::Failure;

mod play;
mod report;
mod script;

use play::ServiceStage;
use report::ServiceReport;
pub(super) use script::{CONFIGURATION, STACK};

/// Everything until the last machine stands by again. It takes a quarter of it, unless something is
/// wrong.
const WITHIN: Duration = Duration::from_secs(100);
/// How long the service may take to end; what it leaves is ended with the machines.
const DRAINS_WITHIN: Duration = Duration::from_secs(5);

/// Shows it, and takes everything down again, however it went.
pub(super) async fn show(
    args: &DemoArgs,
    place: &Path,
    opened: Opened,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let shown = Box::pin(defect(serve(args, place, &opened, signals))).await;
    let Opened { runtime, stand_in, .. } = opened;
    let ended = Box::pin(end(runtime, place)).await;
    stand_in.stop().await;
    match (shown, ended) {
        (Ok(()), Ok(_)) => Ok(Exit::Done),
        (Err(failure), Ok(_)) | (Ok(()), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => Err(first.and(second)),
    }
}

/// Serves, and shows it from the outside.
async fn serve(
    args: &DemoArgs,
    place: &Path,
    opened: &Opened,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let secret = fresh_secret();
    let (ready, is_ready) = oneshot::channel();
    let (stop, mut stopped) = watch::channel(false);
    let stopped = async { drop(stopped.wait_for(|stopped| *stopped).await) };
    // Nobody waits for it any more if the demo was interrupted.
    let ready = |addresses: &Addresses| {
        let _ = ready.send(*addresses);
    };
    let opening = opening(opened, secret.reveal())?;
    let mut serving = pin!(serve_in(&opened.runtime, opening, ready, stopped));
    let mut showing = pin!(watch_it(args, place, opened, secret.reveal(), is_ready));
    let shown = tokio::select! {
        biased;
        ending = signals.next() => return Err(interrupted(ending)),
        served = &mut serving => return Err(too_early(served)),
        shown = &mut showing => shown,
        () = opened.clock.sleep(WITHIN) => {
            return Err(failed(format!("the jobs were not over after {} s", WITHIN.as_secs())));
        }
    };
    if args.keep && shown.is_ok() {
        keep(serving.as_mut(), signals).await?;
    }
    stop.send_replace(true);
    tokio::select! {
        served = serving => served?,
        () = opened.clock.sleep(DRAINS_WITHIN) => {}
    }
    shown
}

/// The same as the arguments of `bullpen serve`, on free ports.
fn opening<'a>(opened: &'a Opened, secret: &str) -> Result<ServeOptions<'a>, Failure> {
    let any = Some(([127, 0, 0, 1], 0).into());
    let args = ServeArgs {
        webhook: any,
        admin: any,
        roles: vec![Role::Webhook, Role::Jobs, Role::Pools],
        common: CommonArgs::default(),
    };
    let environment: Environment = [(SECRET.to_owned(), secret.to_owned())].into();
    let place = ListenerSettings::of(&args, &opened.file, &environment)?;
    Ok(ServeOptions { place, common: &opened.inputs, file: &opened.file })
}

fn too_early(served: Result<(), Failure>) -> Failure {
    served.err().unwrap_or_else(|| failed("the service ended by itself".to_owned()))
}

/// Has GitHub tell the service of its jobs, and tells what came of them.
async fn watch_it(
    args: &DemoArgs,
    place: &Path,
    opened: &Opened,
    secret: &str,
    ready: oneshot::Receiver<Addresses>,
) -> Result<(), Failure> {
    let Opened { runtime, stand_in, clock, file, inputs, .. } = opened;
    let addresses = ready.await.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let url = addresses.webhook_url().unwrap_or_default();
    let hooked = stand_in.hook(Hook { url: url.clone(), secret: Secret::new(secret), runs: true });
    hooked.map_err(|error| Failure::new(Exit::Failed, &error))?;
    let boot = file.process_fleet.boot_delay;
    render::talk_page(&format!(
        "a GitHub of its own at {}, a service at {url},\na new state in {}, machines that pretend \
         to boot for {} s",
        stand_in.url(),
        state(place).display(),
        boot.as_secs_f64()
    ));
    let config = files::config(&inputs.stack)?.unwrap_or_default();
    let pools = Blueprints::of(&file.env, &config, &runtime.foundation);
    let stage = ServiceStage { runtime, stand_in, place, clock: *clock, pools };
    let played = play::play(&stage).await?;
    let report = ServiceReport::new(played, boot, clock.monotonic());
    render::talk("");
    if args.json {
        render::json(&report.json().to_string());
    } else {
        render::page(&report.text());
    }
    if args.keep {
        invite(place, opened, &addresses, report.worth_asking())?;
    }
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(()) } else { Err(failed(wrong.join("; "))) }
}

/// What there is to look at.
fn invite(
    place: &Path,
    opened: &Opened,
    addresses: &Addresses,
    job: Option<u64>,
) -> Result<(), Failure> {
    // In a file, because other users of this machine can read arguments; the directory is ours alone.
    let header = place.join("authorization");
    write(&header, &format!("authorization: Bearer {}\n", opened.stand_in.token().reveal()))?;
    let (state, github) = (state(place).display().to_string(), opened.stand_in.url());
    let job = job.map_or_else(String::new, |job| job.to_string());
    render::talk_page(&format!(
        "\nThe service goes on; Ctrl-C ends it and removes everything. Meanwhile, for example:\n  \
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

/// Leaves it running until somebody has seen enough.
async fn keep(
    serving: Pin<&mut impl Future<Output = Result<(), Failure>>>,
    signals: &mut Signals,
) -> Result<(), Failure> {
    tokio::select! {
        biased;
        _ = signals.next() => {
            render::talk("everything that was started ends now");
            Ok(())
        }
        served = serving => Err(too_early(served)),
    }
}
