//! `bullpen explain`: shows why a job waited, from the ledger alone.
//!
//! Not here: finding the reasons (`bullpen_core::explain`), or recording them (`core::job`).

use bullpen_core::explain::{ExplainInput, Explanation, explain as explained};
use bullpen_core::ids::JobId;
use bullpen_core::job::Job;
use bullpen_core::mailbox::ReportRead;
use bullpen_core::ports::{Fault, JobRow, Ledger as _, Ports};
use bullpen_engine::jobs::aside;
use bullpen_engine::{Stack, reports};

use crate::exit::Exit;
use crate::inputs::{Environment, StackArgs};
use crate::render;
use crate::runtime::{Command, GithubAccess, Runtime};
use crate::workflow::{Failure, inspect, run_command};

/// The job to explain, and the stack that has its row.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The job's id, or the address of its page at GitHub
    #[arg(value_name = "JOB")]
    job: String,
    #[command(flatten)]
    stack: StackArgs,
}

/// Runs `bullpen explain`.
pub(crate) fn explain(args: &ExplainArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

async fn run(args: &ExplainArgs, environment: &Environment) -> Result<Exit, Failure> {
    let job = job_id(&args.job).map_err(|hint| Failure {
        exit: Exit::Usage,
        what: format!("{:?} is not a job", args.job),
        hint: Some(hint.to_owned()),
    })?;
    inspect(&args.stack, environment, |json| ExplainCommand { job, json }).await
}

/// Reads a job id, or the address of the job's page.
fn job_id(text: &str) -> Result<JobId, &'static str> {
    const FORMS: &str = "give its id, a number, or the address of its page, \
                         https://github.com/OWNER/REPO/actions/runs/RUN/job/JOB";
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let text = text.trim();
    if is_number(text) {
        return Ok(JobId::new(text));
    }
    let path = text.split(['?', '#']).next().unwrap_or(text).trim_end_matches('/');
    let mut parts = path.rsplit('/');
    match (parts.next(), parts.next(), parts.next()) {
        // The job's page, the API's address, and the page of its check run, which has the same id.
        (Some(id), Some("job" | "jobs"), _) if is_number(id) => Ok(JobId::new(id)),
        (Some(id), Some("runs"), Some(before)) if is_number(id) && before != "actions" => {
            Ok(JobId::new(id))
        }
        (Some(id), Some("runs"), Some("actions")) if is_number(id) => {
            Err("that is a run: open the job in it, and give that page's address")
        }
        _ => Err(FORMS),
    }
}

/// `bullpen explain`, once its arguments are read.
struct ExplainCommand {
    job: JobId,
    json: bool,
}

impl Command for ExplainCommand {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let explanation = explain_job(&runtime.stack, &self.job).await;
        let explanation =
            explanation.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
        let Some((_, explanation)) = explanation else { return Err(unknown(&self.job)) };
        if self.json {
            let json = serde_json::to_string(&explanation);
            render::json(&json.map_err(|error| Failure::new(Exit::Failed, &error))?);
        } else {
            render::page(&explanation.text());
        }
        Ok(Exit::Done)
    }
}

fn unknown(job: &JobId) -> Failure {
    let hint = "the job belongs to another stack (--state selects one, `bullpen labels parse` reads its \
                labels), ended more than 14 days ago, or no webhook announced it";
    Failure {
        exit: Exit::Failed,
        what: format!("there is no job {job} in this ledger"),
        hint: Some(hint.to_owned()),
    }
}

/// A job's row and the decoded job; `None` if the ledger has no such row.
pub(crate) async fn row<P: Ports>(
    stack: &Stack<P>,
    id: &JobId,
) -> Result<Option<(JobRow, Job)>, Fault> {
    let Some(row) = stack.ports.ledger().row(id).await? else { return Ok(None) };
    let job = Job::decode(&row.body)
        .map_err(|error| Fault::Unreadable(format!("the row of job {id}: {error}")))?;
    Ok(Some((row, job)))
}

/// A job and its explanation; `None` if the ledger has no row of it.
pub(crate) async fn explain_job<P: Ports>(
    stack: &Stack<P>,
    id: &JobId,
) -> Result<Option<(Job, Explanation)>, Fault> {
    let Some((row, job)) = row(stack, id).await? else { return Ok(None) };
    let explanation = explain_row(stack, &row, &job).await?;
    Ok(Some((job, explanation)))
}

/// The explanation of a job whose row was read.
pub(crate) async fn explain_row<P: Ports>(
    stack: &Stack<P>,
    row: &JobRow,
    job: &Job,
) -> Result<Explanation, Fault> {
    // The machine that it runs on may be another job's.
    let runs_on = job.runs_on().filter(|_| !job.is_over());
    let record = match runs_on.or_else(|| job.keeps().map(|held| &held.instance)) {
        Some(instance) => stack.ports.ledger().read(instance).await?,
        None => None,
    };
    let found = match &record {
        Some(record) => reports::found(stack, record, stack.now()).await?,
        None => ReportRead::Absent,
    };
    let (report, unreadable) = match &found {
        ReportRead::Absent => (None, None),
        ReportRead::Unreadable(why) => (None, Some(why)),
        ReportRead::Read(report) => (Some(report), None),
    };
    let set_aside = aside::note_of(stack, &job.id).await?;
    Ok(explained(&ExplainInput {
        job,
        next_look: row.next_look,
        forget_at: row.forget_at,
        record: record.as_ref(),
        report,
        unreadable,
        set_aside: set_aside.as_ref(),
        now: stack.now(),
        limits: &stack.limits,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_is_read_from_its_number_and_from_every_address() {
        for text in [
            "4242",
            " 4242 ",
            "https://github.com/acme/app/actions/runs/77/job/4242",
            "https://github.com/acme/app/actions/runs/77/job/4242?pr=9#step:3:1",
            "https://ghes.example/acme/app/actions/runs/77/job/4242/",
            "https://api.github.com/repos/acme/app/actions/jobs/4242",
            "https://github.com/acme/app/runs/4242",
        ] {
            assert_eq!(job_id(text), Ok(JobId::new("4242")), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_job_is_refused_with_the_accepted_forms() {
        let run = job_id("https://github.com/acme/app/actions/runs/77").expect_err("a run");
        assert!(run.starts_with("that is a run"), "{run}");
        for text in ["", "build", "-1", "https://github.com/acme/app", "job/", "job/4x"] {
            assert!(job_id(text).expect_err(text).starts_with("give its id"), "{text}");
        }
    }
}
