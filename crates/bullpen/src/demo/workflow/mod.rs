//! `bullpen demo --workflow`: shows three workflow runs on this machine.
//!
//! Not here: the runs (`script`), running them (`play`), or judging and printing (`report`).

use std::path::Path;
use std::time::Duration;

use bullpen_core::ports::Clock as _;

use super::{DemoArgs, DemoSetup, catch_panic, end, failed, interrupted, state};
use crate::exit::Exit;
use crate::render;
use crate::signals::Signals;
use crate::workflow::Failure;

mod play;
mod report;
mod script;

use report::WorkflowReport;

/// The time limit of all runs together. A good demo takes a quarter of it.
const WITHIN: Duration = Duration::from_secs(25);

/// Shows the runs and prints the report.
pub(super) async fn show(
    args: &DemoArgs,
    place: &Path,
    setup: DemoSetup,
    signals: &mut Signals,
) -> Result<Exit, Failure> {
    let report = Box::pin(run_and_clean_up(place, setup, signals)).await?;
    if args.json {
        render::json(&report.json().to_string());
    } else {
        render::page(&report.text());
    }
    let wrong = report.wrong();
    if wrong.is_empty() { Ok(Exit::Done) } else { Err(failed(wrong.join("; "))) }
}

/// Runs the script, and always cleans up.
async fn run_and_clean_up(
    place: &Path,
    setup: DemoSetup,
    signals: &mut Signals,
) -> Result<WorkflowReport, Failure> {
    let DemoSetup { runtime, stand_in, args, clock, file, .. } = setup;
    let boot = file.process_fleet.boot_delay;
    render::talk(&format!(
        "a stand-in for GitHub at {}, a new state in {}, machines that pretend to boot for {} s",
        stand_in.url(),
        state(place).display(),
        boot.as_secs_f64()
    ));
    let demo =
        play::WorkflowDemo { runtime: &runtime, stand_in: &stand_in, args: &args, place, clock };
    let outcome = Box::pin(run_within_limit(&demo, signals)).await;
    let ended = Box::pin(end(runtime, place)).await;
    stand_in.stop().await;
    match (outcome, ended) {
        (Ok(outcome), Ok(machines)) => {
            Ok(WorkflowReport::new(outcome, boot, machines, clock.monotonic()))
        }
        (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        (Err(first), Err(second)) => Err(first.and(second)),
    }
}

/// Runs the script until it ends, a signal comes, or the time limit passes.
async fn run_within_limit(
    demo: &play::WorkflowDemo<'_>,
    signals: &mut Signals,
) -> Result<play::WorkflowOutcome, Failure> {
    tokio::select! {
        biased;
        signal = signals.next() => Err(interrupted(signal)),
        outcome = catch_panic(play::play(demo)) => outcome,
        () = demo.clock.sleep(WITHIN) => {
            Err(failed(format!("the runs did not end within {} s", WITHIN.as_secs())))
        }
    }
}
