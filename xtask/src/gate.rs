//! The gate: a list of steps run in order, stopping at the first that fails.
//!
//! A *step* is a name, a line saying what it does, and a function. Every step is announced on
//! stderr with its number, and at the end every step is listed with its seconds. Nothing is retried.
//!
//! Not here: the steps (`steps`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::place::Place;
use crate::tools::{self, TestTools};

/// One step of the gate. Adding one is a line in `steps::ALL`.
#[derive(Debug)]
pub(crate) struct Step {
    /// The name for `--only`.
    pub(crate) name: &'static str,
    /// What it does, in a line.
    pub(crate) what: &'static str,
    /// The part of the gate that it belongs to; `None`: both.
    pub(crate) part: Option<Part>,
    /// Does it.
    pub(crate) run: fn(&Context<'_>) -> Result<()>,
}

/// The two parts of the gate. Together they are the whole; no check is in both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// `cargo xtask test`: minutes, for every change.
    Quick,
    /// `cargo xtask test --deep`: everything else.
    Deep,
}

/// Which steps a run of the gate consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Every step of a part.
    All(Part),
    /// Steps by name, of either part.
    Only(Vec<String>),
}

/// What a step is given.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) place: &'a Place,
    /// `git status --porcelain` from before the first step.
    pub(crate) tree_before: String,
    /// The tools that a step of this run has found.
    tools: RefCell<BTreeMap<Part, TestTools>>,
}

impl Context<'_> {
    /// What the tests of a part run; the first step that asks looks for it, and installs what is
    /// missing.
    pub(crate) fn tools(&self, part: Part) -> Result<TestTools> {
        if let Some(found) = self.tools.borrow().get(&part) {
            return Ok(found.clone());
        }
        let found = tools::for_tests(self.place, part)?;
        self.tools.borrow_mut().insert(part, found.clone());
        Ok(found)
    }
}

/// How one step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed(Duration),
    Failed(Duration),
    NotRun,
}

/// Runs the chosen steps in the list's order.
pub(crate) fn run(place: &Place, all: &[Step], choice: &Choice) -> Result<()> {
    let steps = choose(all, choice)?;
    let tree_before = crate::clean_tree::status(place)?;
    let context = Context { place, tree_before, tools: RefCell::default() };
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
fn choose<'a>(all: &'a [Step], choice: &Choice) -> Result<Vec<&'a Step>> {
    let is_chosen = |step: &&Step| match choice {
        Choice::All(part) => step.part.is_none_or(|its| its == *part),
        Choice::Only(names) => names.iter().any(|name| name == step.name),
    };
    if let Choice::Only(names) = choice
        && let Some(unknown) = names.iter().find(|name| all.iter().all(|step| step.name != **name))
    {
        bail!("the gate has no step `{unknown}`\n\nhint: `cargo xtask test --list` names them");
    }
    Ok(all.iter().filter(is_chosen).collect())
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
        Step { name: "one", what: "first", part: Some(Part::Quick), run: |_| Ok(()) },
        Step { name: "two", what: "second", part: Some(Part::Deep), run: |_| Ok(()) },
        Step { name: "three", what: "third", part: None, run: |_| Ok(()) },
    ];

    fn names(choice: &Choice) -> Result<Vec<&'static str>> {
        Ok(choose(STEPS, choice)?.iter().map(|step| step.name).collect())
    }

    fn only(names: &[&str]) -> Choice {
        Choice::Only(names.iter().map(|&name| name.to_owned()).collect())
    }

    #[test]
    fn each_part_has_its_own_steps_and_those_of_both() {
        assert_eq!(names(&Choice::All(Part::Quick)).unwrap(), ["one", "three"]);
        assert_eq!(names(&Choice::All(Part::Deep)).unwrap(), ["two", "three"]);
    }

    #[test]
    fn chosen_steps_keep_the_lists_order() {
        assert_eq!(names(&only(&["two", "one"])).unwrap(), ["one", "two"]);
        assert_eq!(names(&only(&["two"])).unwrap(), ["two"]);
    }

    #[test]
    fn an_unknown_step_is_an_error_that_says_where_the_names_are() {
        let text = names(&only(&["four"])).unwrap_err().to_string();
        assert!(text.contains("no step `four`") && text.contains("--list"), "{text}");
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
