//! Reads a request's id, `<run>.<attempt>.<name>`, or its parts.
//!
//! A *run attempt* is one attempt of one workflow run; its requests have different *names*. GitHub
//! ignores the case of labels, so ids are in lower case, and two requests never share a label.
//!
//! Not here: the request's other inputs (`provision`).

use std::fmt;

use bullpen_core::ids::RequestId;

use super::UsageError;
use super::given::{Given, Reader};

/// The longest part of an id. A label of at most 256 characters holds the run and the name.
const PART_CHARS_MAX: usize = 128;
/// The run of a command outside of a workflow.
const LOCAL: &str = "local";

/// One attempt of one workflow run, or `local.1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunAttempt {
    run: String,
    attempt: u32,
}

impl RunAttempt {
    /// Reads `<run>.<attempt>`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (run, attempt) = text.split_once('.')?;
        Self::of(run, attempt)
    }

    fn of(run: &str, attempt: &str) -> Option<Self> {
        let attempt = super::values::number(attempt, &(1..=u32::MAX))?;
        Some(Self { run: run_part(run)?, attempt })
    }

    /// The id of the request with this name.
    pub(crate) fn request(&self, name: &str) -> RequestId {
        RequestId::new(format!("{self}.{name}"))
    }
}

impl fmt::Display for RunAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.run, self.attempt)
    }
}

/// The arguments for a request's id.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct IdentityArgs {
    /// The whole request id, RUN.ATTEMPT.NAME
    #[arg(long, value_name = "ID", allow_hyphen_values = true, conflicts_with_all = ["run_id", "name"])]
    pub(crate) request: Option<String>,
    /// The run attempt, RUN.ATTEMPT [default: the workflow's, or local.1]
    #[arg(long, value_name = "RUN.ATTEMPT", allow_hyphen_values = true)]
    pub(crate) run_id: Option<String>,
    /// The request's name, unique in its run: letters, digits, `_` and `-` [default: the job and
    /// the step]
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    pub(crate) name: Option<String>,
}

/// The given parts of a request's id, checked, without defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The whole id.
    pub(crate) request: Option<RequestId>,
    /// The run attempt.
    pub(crate) run: Option<RunAttempt>,
    /// The name.
    pub(crate) name: Option<String>,
}

impl Identity {
    /// Reads the id or its parts. The whole id wins, except that a part as a flag wins over a whole
    /// id as a variable.
    pub(crate) fn read(args: &IdentityArgs, reader: Reader<'_>) -> Result<Self, UsageError> {
        let by_parts = args.run_id.is_some() || args.name.is_some();
        let whole = reader.input("request", args.request.as_ref());
        if let Some(given) = whole.filter(|_| args.request.is_some() || !by_parts) {
            let request = Some(request(&given)?);
            return Ok(Self { request, run: None, name: None });
        }
        let run = reader.input("run-id", args.run_id.as_ref());
        let given_name = reader.input("name", args.name.as_ref());
        Ok(Self {
            request: None,
            run: run.map(|given| run_attempt(&given)).transpose()?,
            name: given_name.map(|given| name(&given)).transpose()?,
        })
    }
}

/// The run attempt in the workflow's variables, or `local.1` outside of a workflow.
pub(crate) fn current_run(reader: Reader<'_>) -> Result<RunAttempt, UsageError> {
    let Some(run) = reader.variable("GITHUB_RUN_ID") else {
        return Ok(RunAttempt { run: LOCAL.to_owned(), attempt: 1 });
    };
    let attempt = reader.variable("GITHUB_RUN_ATTEMPT");
    let number = attempt.as_ref().map_or("1", Given::word);
    let culprit = attempt.as_ref().filter(|_| run_part(run.word()).is_some()).unwrap_or(&run);
    RunAttempt::of(run.word(), number)
        .ok_or_else(|| culprit.refuse("a value of GitHub's; a run id and its attempt are numbers"))
}

/// The name from the workflow's variables: the job and the step, which are unique in a run except
/// in a matrix. Illegal characters become `-`.
pub(crate) fn step_name(reader: Reader<'_>) -> Result<Option<String>, UsageError> {
    let words = ["GITHUB_JOB", "GITHUB_ACTION"].map(|variable| reader.variable(variable));
    let words: Vec<Given> = words.into_iter().flatten().collect();
    let mapped: Vec<String> = words.iter().map(|given| mapped(given.word())).collect();
    let name = mapped.join("-");
    match words.first() {
        None => Ok(None),
        Some(_) if part(&name).is_some() => Ok(Some(name)),
        // Cutting the name short could give two steps the same name.
        Some(given) => {
            Err(given.refuse_unseen("job and step are too long for a name; give --name"))
        }
    }
}

/// The text in lower case, with `-` for every illegal character.
pub(crate) fn mapped(text: &str) -> String {
    let fold = |c: char| if is_plain(c) { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(fold).collect()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

fn part(text: &str) -> Option<String> {
    let legal = !text.is_empty() && text.len() <= PART_CHARS_MAX && text.chars().all(is_plain);
    legal.then(|| text.to_ascii_lowercase())
}

/// A run has no hyphens. So a label, `warm-4711.1.build`, is not a request's id: `release` of a
/// label would find no request, and succeed.
fn run_part(text: &str) -> Option<String> {
    part(text).filter(|run| run.chars().all(|c| c.is_ascii_alphanumeric()))
}

fn name(given: &Given) -> Result<String, UsageError> {
    part(given.word()).ok_or_else(|| {
        given.refuse(format!("a name of up to {PART_CHARS_MAX} letters, digits, `_` and `-`"))
    })
}

fn run_attempt(given: &Given) -> Result<RunAttempt, UsageError> {
    RunAttempt::parse(given.word())
        .ok_or_else(|| given.refuse("a run attempt as RUN.ATTEMPT, such as 4711.1"))
}

fn request(given: &Given) -> Result<RequestId, UsageError> {
    let parts = given
        .word()
        .rsplit_once('.')
        .and_then(|(run, name)| Some(RunAttempt::parse(run)?.request(&part(name)?)));
    parts.ok_or_else(|| given.refuse("a request id as RUN.ATTEMPT.NAME, such as 4711.1.build"))
}
