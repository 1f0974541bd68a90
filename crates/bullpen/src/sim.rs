//! `bullpen sim run`: runs seeds in parallel with progress, and prints for every failure the
//! command that repeats it; or runs one scenario from a file ([`scenario`]).
//!
//! Not here: the simulator (`bullpen-sim`).

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bullpen_sim::kernel::{self, Failure, Run, Stats};

use crate::exit::Exit;
use crate::render;

mod scenario;

/// The worlds to run, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    what: What,
    /// How many seeds to run at once [default: the processors of this machine]
    #[arg(
        long,
        value_name = "N",
        conflicts_with = "scenario",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    jobs: Option<u16>,
    /// Print every ledger write and every end of a machine
    #[arg(long)]
    trace: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The source of the worlds.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The seeds, as FIRST..END; END is not run
    #[arg(long, value_name = "A..B", value_parser = parse_range)]
    seeds: Option<Range<u64>>,
    /// A file with a scenario, one verb per line
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let (first, end) = text.split_once("..").ok_or("write it as FIRST..END, such as 0..100")?;
    let number =
        |part: &str| part.parse::<u64>().map_err(|_| format!("{part:?} is not a whole number"));
    let range = number(first)?..number(end)?;
    if range.is_empty() {
        return Err(format!("{text} holds no seed: the end is not run"));
    }
    Ok(range)
}

#[derive(Debug, Default)]
struct Tally {
    stats: Stats,
    clean: u64,
    failures: Vec<Failure>,
}

/// Runs `bullpen sim run`.
pub(crate) fn run(args: &RunArgs) -> Exit {
    if let Some(file) = &args.what.scenario {
        return scenario::play(file, args.trace, args.json);
    }
    let seeds = args.what.seeds.clone().expect("clap wants one of the two");
    run_seeds(args, &seeds)
}

/// Runs the seeds; fails if one of them does.
fn run_seeds(args: &RunArgs, seeds: &Range<u64>) -> Exit {
    let began = now();
    let tally = Mutex::new(Tally::default());
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..threads(args) {
            scope.spawn(|| work(args, seeds, &next, &tally));
        }
    });
    let mut tally = tally.into_inner().expect("a seed that panics has ended the run already");
    tally.failures.sort_by_key(|failure| failure.seed);
    report(args, &tally, began.elapsed());
    if tally.failures.is_empty() { Exit::Done } else { Exit::Failed }
}

fn threads(args: &RunArgs) -> usize {
    let machine = || std::thread::available_parallelism().map_or(1, usize::from);
    args.jobs.map_or_else(machine, usize::from)
}

fn work(args: &RunArgs, seeds: &Range<u64>, next: &AtomicU64, tally: &Mutex<Tally>) {
    /// The number of clean seeds between two lines of progress.
    const PROGRESS: u64 = 500;
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds.end {
            return;
        }
        let outcome = kernel::run(seed, args.trace);
        let mut tally = tally.lock().expect("a seed that panics has ended the run already");
        match outcome {
            Ok(run) => {
                print_trace(&run);
                tally.stats += run.stats;
                tally.clean += 1;
                if tally.clean.is_multiple_of(PROGRESS) {
                    render::talk(&format!("{} seeds clean", tally.clean));
                }
            }
            Err(failure) => {
                for line in &failure.trace {
                    render::data(line);
                }
                tally.failures.push(*failure);
            }
        }
    }
}

fn print_trace(run: &Run) {
    for line in &run.trace {
        render::data(line);
    }
    if !run.trace.is_empty() {
        render::data(&format!("seed {} digest {:016x}", run.seed, run.digest));
    }
}

fn report(args: &RunArgs, tally: &Tally, took: Duration) {
    if args.json {
        render::json(&json(tally, took).to_string());
    } else {
        render::page(&text(tally, took));
    }
    for failure in &tally.failures {
        render::talk_page(&format!("\n{failure}"));
    }
}

fn per_second(count: f64, took: Duration) -> f64 {
    count / took.as_secs_f64().max(0.001)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people; seeds are far below 2⁵²")]
fn rates(tally: &Tally, took: Duration) -> (f64, f64) {
    let seeds = tally.clean + tally.failures.len() as u64;
    (per_second(seeds as f64, took), per_second(hours(tally.stats.simulated), took))
}

fn hours(time: Duration) -> f64 {
    time.as_secs_f64() / 3_600.0
}

fn text(tally: &Tally, took: Duration) -> String {
    let Stats { workflows, fulfilled, reused, created, jobs, writes, troubles, ended, .. } =
        &tally.stats;
    let Stats { cancelled, resumed, doubled, simulated, machine_time, .. } = &tally.stats;
    let (seeds_rate, hours_rate) = rates(tally, took);
    format!(
        "{} clean, {} failed in {:.1} s: {seeds_rate:.0} seeds/s, {hours_rate:.0} simulated hours/s\n\
         {workflows} workflow runs, {fulfilled} fulfilled, {cancelled} cancelled, {resumed} run again, \
         {doubled} run twice at once\n\
         {:.0} simulated hours, {:.0} machine-hours\n\
         {reused} runners reused, {created} created, {jobs} jobs done, {writes} ledger writes\n\
         {} calls, {} refused, {} answers lost, {} landed late, {} crashes\n\
         {}\n\
         machines ended: {}",
        tally.clean,
        tally.failures.len(),
        took.as_secs_f64(),
        hours(*simulated),
        hours(*machine_time),
        troubles.calls,
        troubles.refused,
        troubles.answers_lost,
        troubles.landed_late,
        troubles.crashes,
        troubles
            .happened
            .iter()
            .map(|(what, n)| format!("{what} {n}"))
            .collect::<Vec<_>>()
            .join(", "),
        ended.iter().map(|(why, count)| format!("{why:?} {count}")).collect::<Vec<_>>().join(", "),
    )
}

fn json(tally: &Tally, took: Duration) -> serde_json::Value {
    let Stats { workflows, fulfilled, cancelled, resumed, doubled, .. } = &tally.stats;
    let Stats { reused, created, jobs, writes, troubles, simulated, ended, .. } = &tally.stats;
    serde_json::json!({
        "clean": tally.clean,
        "failed": tally.failures.iter().map(|failure| serde_json::json!({
            "seed": failure.seed,
            "violation": failure.violation.to_string(),
            "history": failure.history,
        })).collect::<Vec<_>>(),
        "seconds": took.as_secs_f64(),
        "simulated_hours": hours(*simulated),
        "machine_hours": hours(tally.stats.machine_time),
        "workflows": workflows,
        "fulfilled": fulfilled,
        "cancelled": cancelled,
        "run_again": resumed,
        "run_twice_at_once": doubled,
        "reused": reused,
        "created": created,
        "jobs": jobs,
        "ledger_writes": writes,
        "calls": troubles.calls,
        "refused": troubles.refused,
        "answers_lost": troubles.answers_lost,
        "landed_late": troubles.landed_late,
        "crashes": troubles.crashes,
        "happened": troubles.happened,
        "ended": ended,
    })
}

#[expect(clippy::disallowed_methods, reason = "the duration of a simulation is only printed")]
pub(crate) fn now() -> std::time::Instant {
    std::time::Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_strictly() {
        assert_eq!(parse_range("3..5"), Ok(3..5));
        for (text, says) in [
            ("3", "FIRST..END"),
            ("5..5", "holds no seed"),
            ("a..5", "\"a\" is not a whole number"),
            ("-1..5", "\"-1\" is not a whole number"),
        ] {
            let error = parse_range(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
