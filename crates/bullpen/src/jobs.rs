//! `bullpen jobs`: the jobs that wait and run, and what each waits for.
//!
//! Not here: the whole story of one job ([`crate::explain`]), or finding the reasons
//! (`bullpen_core::explain`).

use std::time::Duration;

use bullpen_core::explain::{Explanation, span};
use bullpen_core::ids::Repository;
use bullpen_core::job::{Job, Lane};
use bullpen_core::ports::{Clock as _, Fault, ItemKind, JobRow, Ledger as _, Ports, Unreadable};
use bullpen_engine::Stack;
use futures_util::stream::{self, StreamExt as _};
use serde_json::json;

use crate::exit::Exit;
use crate::explain::explain_row;
use crate::inputs::{Environment, StackArgs};
use crate::render;
use crate::runtime::{Command, GithubAccess, Runtime};
use crate::table::{Column, count, long, number, whole};
use crate::workflow::{Failure, inspect, run_command};

/// How many jobs are read at a time: those who serve jobs share the store.
const READS_AT_ONCE: usize = 16;
/// How often `--watch` looks again.
const WATCH_EVERY: Duration = Duration::from_secs(2);
/// Moves a terminal's cursor home and clears what is below.
const CLEAR: &str = "\u{1b}[H\u{1b}[J";

/// Which jobs to show.
#[derive(Debug, clap::Args)]
pub(crate) struct JobsArgs {
    /// Only jobs that still wait for a runner
    #[arg(long)]
    waiting: bool,
    /// Only jobs of this repository
    #[arg(long, value_name = "OWNER/NAME")]
    of: Option<String>,
    /// Only jobs of this pool
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// The most jobs to show, those that wait longest first
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    limit: usize,
    /// Show them again every two seconds, until a signal
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    stack: StackArgs,
}

/// Runs `bullpen jobs`.
pub(crate) fn jobs(args: &JobsArgs) -> Exit {
    run_command(async |environment| run(args, environment).await)
}

async fn run(args: &JobsArgs, environment: &Environment) -> Result<Exit, Failure> {
    inspect(&args.stack, environment, |json| JobsCommand { args, json }).await
}

/// `bullpen jobs`, once its arguments are read.
struct JobsCommand<'a> {
    args: &'a JobsArgs,
    json: bool,
}

impl Command for JobsCommand<'_> {
    type Outcome = Result<Exit, Failure>;

    async fn run<P: Ports<Forge = GithubAccess>>(self, runtime: Runtime<P>) -> Self::Outcome {
        let stack = &runtime.stack;
        loop {
            let listed = list(stack, self.args).await;
            let listed =
                listed.map_err(|fault| Failure::of("could not read the ledger", &fault))?;
            if self.args.watch && !self.json && render::is_terminal() {
                render::screen(CLEAR);
            }
            listed.show(self.json)?;
            if !self.args.watch {
                return Ok(Exit::Done);
            }
            stack.ports.clock().sleep(WATCH_EVERY).await;
        }
    }
}

/// The jobs that are not over, or whose end is not dealt with.
struct ListedJobs {
    shown: Vec<(Job, Explanation)>,
    /// How many more there are.
    more: usize,
}

/// Reads the rows of all jobs that are not over, and explains those that are shown.
async fn list<P: Ports>(stack: &Stack<P>, args: &JobsArgs) -> Result<ListedJobs, Fault> {
    let mut rows = Vec::new();
    let mut cursor: Option<String> = None;
    // No row of a job that is not over outlives this, unless a process looks at it before.
    let all = stack.now().after(stack.limits.job_row_ttl);
    loop {
        let page = stack.ports.ledger().rows_due(all, cursor.as_deref()).await?;
        rows.extend(page.items.into_iter().filter_map(|row| decoded(stack, row)));
        let Some(next) = page.next else { break };
        cursor = Some(next);
    }
    rows.retain(|(_, job)| args.wants(job));
    // Those that wait come first, the oldest of them at the top.
    rows.sort_by_key(|(row, job)| (row.waiting.is_none(), job.known.queued_at(), job.id.clone()));
    let more = rows.len().saturating_sub(args.limit);
    rows.truncate(args.limit);
    let explained = rows.into_iter().map(async |(row, job)| {
        let explanation = explain_row(stack, &row, &job).await?;
        Ok((job, explanation))
    });
    let shown: Vec<Result<_, Fault>> =
        stream::iter(explained).buffered(READS_AT_ONCE).collect().await;
    Ok(ListedJobs { shown: shown.into_iter().collect::<Result<_, _>>()?, more })
}

/// The job of a row that this version can read.
pub(crate) fn decoded<P: Ports>(stack: &Stack<P>, row: JobRow) -> Option<(JobRow, Job)> {
    match Job::decode(&row.body) {
        Ok(job) => Some((row, job)),
        Err(error) => {
            let bad = Unreadable::of(ItemKind::Row, &row.job, &row.body, error);
            stack.unreadable_items.note(&bad);
            None
        }
    }
}

impl JobsArgs {
    fn wants(&self, job: &Job) -> bool {
        let of_repository = |name: &String| job.repository() == &Repository::new(name.as_str());
        let of_pool = |name: &String| matches!(&job.lane, Some(Lane::Pool(pool)) if pool.as_str() == name.as_str());
        self.of.as_ref().is_none_or(of_repository)
            && self.pool.as_ref().is_none_or(of_pool)
            && (!self.waiting || job.waiting_at().is_some())
    }
}

const COLUMNS: [Column; 6] =
    [whole("JOB"), long("REPOSITORY"), long("LANE"), whole("STATE"), number("WAITED"), long("NOW")];

impl ListedJobs {
    fn show(&self, json: bool) -> Result<(), Failure> {
        if json {
            let jobs: Vec<_> = self
                .shown
                .iter()
                .map(|(job, explanation)| json!({"lane": lane(job), "explanation": explanation}))
                .collect();
            let all = serde_json::to_string(&json!({"jobs": jobs, "more": self.more}));
            render::json(&all.map_err(|error| Failure::new(Exit::Failed, &error))?);
            return Ok(());
        }
        let rows: Vec<_> = self.shown.iter().map(|(job, told)| row(job, told)).collect();
        render::table(&COLUMNS, &rows);
        let waiting = self.shown.iter().filter(|(_, told)| told.waits).count();
        let more = match self.more {
            0 => String::new(),
            more => format!(", {more} more are not shown (--limit)"),
        };
        let jobs = count(self.shown.len(), "job");
        render::talk(&format!(
            "{jobs}, {waiting} of them waiting{more}; `bullpen explain JOB` says why"
        ));
        Ok(())
    }
}

fn row(job: &Job, told: &Explanation) -> [String; COLUMNS.len()] {
    let waited = told.waited_ms.map(|waited| span(Duration::from_millis(waited)));
    [
        told.job.clone(),
        told.repository.clone(),
        lane(job),
        told.state.to_owned(),
        waited.unwrap_or_else(|| "-".to_owned()),
        told.now.clone(),
    ]
}

fn lane(job: &Job) -> String {
    job.lane.as_ref().map_or_else(|| "-".to_owned(), ToString::to_string)
}
