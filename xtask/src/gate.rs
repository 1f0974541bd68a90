//! The gate: a list of steps run in order, stopping at the first that fails.
//!
//! A *step* is a name, a line saying what it does, and a function. Every step is announced on
//! stderr with its number, and at the end every step is listed with its seconds. Nothing is retried.
//!
//! Not here: the steps (`steps`).

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::place::Place;

/// One step of the gate. Adding one is a line in `steps::ALL`.
#[derive(Debug)]
pub(crate) struct Step {
    /// What `--only` calls it.
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) what: &'static str,
    /// Does it.
    pub(crate) run: fn(&Context<'_>) -> Result<()>,
}

/// What a step is given.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) place: &'a Place,
    /// `git status --porcelain` from before the first step.
    pub(crate) tree_before: String,
}

/// How one step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// Runs every step, or those named by `only`, in the list's order.
pub(crate) fn run(place: &Place, all: &[Step], only: &[String]) -> Result<()> {
    let steps = choose(all, only)?;
    let tree_before = crate::clean_tree::status(place)?;
    let context = Context { place, tree_before };
    eprintln!("gate: building into {}", place.target.display());

    let mut outcomes: Vec<(&str, Outcome)> =
        steps.iter().map(|step| (step.name, Outcome::NotRun)).collect();
    let count = steps.len();
    let mut failed = None;
    for ((number, step), entry) in (1..).zip(&steps).zip(&mut outcomes) {
        eprintln!("\n[{number}/{count}] {}: {}", step.name, step.what);
        let (result, took) = timed(|| (step.run)(&context));
        if let Err(error) = result {
            eprintln!("[{number}/{count}] {}: FAILED after {}", step.name, seconds(took));
            entry.1 = Outcome::Failed(took);
            failed = Some((step.name, error));
            break;
        }
        eprintln!("[{number}/{count}] {}: passed in {}", step.name, seconds(took));
        entry.1 = Outcome::Passed(took);
    }

    eprintln!("\n{}", summary(&outcomes));
    match failed {
        None => Ok(()),
        Some((name, error)) => bail!("step `{name}`: {error:#}\n\n{}", hint(name)),
    }
}

/// The steps to run, in the list's order; a name that is not in the list is an error.
fn choose<'a>(all: &'a [Step], only: &[String]) -> Result<Vec<&'a Step>> {
    if let Some(unknown) = only.iter().find(|name| all.iter().all(|step| step.name != **name)) {
        bail!("the gate has no step `{unknown}`\n\nhint: `cargo xtask test --list` names them");
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(all.iter().filter(wanted).collect())
}

fn hint(name: &str) -> String {
    format!(
        "hint: `cargo xtask test --only {name}` runs this step alone; `cargo xtask test --list` names them all"
    )
}

fn summary(outcomes: &[(&str, Outcome)]) -> String {
    let mut lines = vec![format!("{:<11} {:<8} {:>9}", "step", "outcome", "time")];
    let mut total = Duration::ZERO;
    for (name, outcome) in outcomes {
        let (word, took) = match outcome {
            Outcome::Passed(took) => ("passed", Some(*took)),
            Outcome::Failed(took) => ("FAILED", Some(*took)),
            Outcome::NotRun => ("not run", None),
        };
        total += took.unwrap_or_default();
        let line = format!("{name:<11} {word:<8} {:>9}", took.map_or(String::new(), seconds));
        lines.push(line.trim_end().to_owned());
    }
    lines.push(format!("{:<11} {:<8} {:>9}", "total", "", seconds(total)));
    lines.join("\n")
}

pub(crate) fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

#[expect(
    clippy::disallowed_methods,
    reason = "the gate measures real time; no decision rests on it"
)]
pub(crate) fn timed<T>(body: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = body();
    (result, start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: &[Step] = &[
        Step { name: "one", what: "first", run: |_| Ok(()) },
        Step { name: "two", what: "second", run: |_| Ok(()) },
    ];

    fn names(only: &[&str]) -> Result<Vec<&'static str>> {
        let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
        Ok(choose(STEPS, &only)?.iter().map(|step| step.name).collect())
    }

    #[test]
    fn no_choice_is_every_step() {
        assert_eq!(names(&[]).unwrap(), ["one", "two"]);
    }

    #[test]
    fn chosen_steps_keep_the_lists_order() {
        assert_eq!(names(&["two", "one"]).unwrap(), ["one", "two"]);
        assert_eq!(names(&["two"]).unwrap(), ["two"]);
    }

    #[test]
    fn an_unknown_step_is_an_error_that_says_where_the_names_are() {
        let text = names(&["three"]).unwrap_err().to_string();
        assert!(text.contains("no step `three`") && text.contains("--list"), "{text}");
    }

    #[test]
    fn the_summary_lists_what_was_not_run() {
        let outcomes = [
            ("fmt", Outcome::Passed(Duration::from_millis(1_250))),
            ("clippy", Outcome::Failed(Duration::from_secs(10))),
            ("test", Outcome::NotRun),
        ];
        assert_eq!(
            summary(&outcomes),
            "step        outcome       time\n\
             fmt         passed       1.2 s\n\
             clippy      FAILED      10.0 s\n\
             test        not run\n\
             total                   11.2 s"
        );
    }
}
