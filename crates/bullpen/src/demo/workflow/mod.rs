//! `bullpen demo --workflow`: three workflow runs on this machine, from the first machine to the last
//! one's end.
//!
//! Not here: what the runs are (`script`), going through them (`play`), or telling (`report`).

use std::path::Path;
use std::time::Duration;

use bullpen_core::ports::Clock as _;

use super::{DemoArgs, Opened, defect, end, failed, interrupted, state};
use crate::exit::Exit;
use crate::render;
use crate::signals::Signals;
use crate::workflow::Failure;

mod play;
mod report;
mod script;

use report::WorkflowReport;

/// All runs together. They take a quarter of it, unless something is wrong.
const WITHIN: Duration = Duration::from_secs(25);

/// Shows it, and takes everything down again.
pub(super) async fn show(
    args: &DemoArgs,
    place: &Path,
    opened: Opened,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let report = Box::pin(stage(place, opened, signals)).await?;
    if args.json {
        render::json(&report.json().to_string());
    } else {
        render::page(&report.text());
    }
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(Exit::Done) } else { Err(failed(wrong.join("; "))) }
}

/// Goes through the runs, and takes everything down again, however they went.
async fn stage(
    place: &Path,
    opened: Opened,
    signals: &mut Signals,
) -> Result<WorkflowReport, Failure> {
    let Opened { runtime, stand_in, args, clock, file, .. } = opened;
    let boot = file.process_fleet.boot_delay;
    render::talk(&format!(
        "a GitHub of its own at {}, a new state in {}, machines that pretend to boot for {} s",
        stand_in.url(),
        state(place).display(),
        boot.as_secs_f64()
    ));
    let stage =
        play::WorkflowStage { runtime: &runtime, stand_in: &stand_in, args: &args, place, clock };
    let played = Box::pin(watched(&stage, signals)).await;
    let ended = Box::pin(end(runtime, place)).await;
    stand_in.stop().await;
    match (played, ended) {
        (Ok(played), Ok(machines)) => {
            Ok(WorkflowReport::new(played, boot, machines, clock.monotonic()))
        }
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => Err(first.and(second)),
    }
}

/// The runs, until they are over, somebody interrupts them, or they take too long.
async fn watched(
    stage: &play::WorkflowStage<'_>,
    signals: &mut Signals,
) -> Result<play::WorkflowOutcome, Failure> {
    tokio::select! {
        biased;
        ending = signals.next() => Err(interrupted(ending)),
        played = defect(play::play(stage)) => played,
        () = stage.clock.sleep(WITHIN) => {
            Err(failed(format!("the runs were not over after {} s", WITHIN.as_secs())))
        }
    }
}
