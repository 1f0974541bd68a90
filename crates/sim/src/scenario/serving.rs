//! Reading the lines about the service: its processes, webhooks, and jobs.
//!
//! Not here: every other line (`parse`), or doing it (`service`).

use std::time::Duration;

use bullpen_core::ids::{ClassName, JobId, PoolName, RunAttempt};
use bullpen_core::job::Origin;

use super::parse::death;
use super::pools::PoolLine;
use super::verb::{Death, Verb};
use super::words::{Misspelt, Word, Words};

/// The configuration of the service.
#[derive(Clone, Debug)]
pub(super) struct ServiceConfigured {
    pub(super) reuse: Option<ClassName>,
    pub(super) trust: Option<String>,
    pub(super) cancels: bool,
    pub(super) cap: Option<u32>,
    pub(super) busy: Option<u32>,
}

/// A process that serves.
#[derive(Clone, Debug)]
pub(super) struct ServingProcess {
    pub(super) name: String,
    pub(super) death: Option<Death>,
}

/// How webhooks travel.
#[derive(Clone, Copy, Debug)]
pub(super) enum WebhookTravel {
    Well,
    Lost,
    Unsent,
    Twice,
    Late(Duration),
    Kept,
    Backwards,
}

/// Jobs with consecutive ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobIds {
    first: u64,
    count: u64,
}

impl JobIds {
    pub(super) fn ids(self) -> Vec<JobId> {
        (self.first..self.first + self.count).map(|id| JobId::new(id.to_string())).collect()
    }
}

/// Jobs that GitHub queues.
#[derive(Clone, Debug)]
pub(super) struct QueueJobs {
    pub(super) jobs: JobIds,
    pub(super) repository: String,
    pub(super) run: Option<String>,
    pub(super) lasts: Duration,
    pub(super) origin: Origin,
    pub(super) is_public: bool,
    /// The installation that announces them, if it is not the service's own.
    pub(super) installation: Option<u64>,
    wants: String,
    shared: Option<String>,
    head: Option<String>,
    also: Option<String>,
}

impl QueueJobs {
    /// The labels of a job of this run: a label of its own, unless the line shares one.
    pub(super) fn labels(&self, run: &RunAttempt, id: &JobId) -> Vec<String> {
        let wants = &self.wants;
        let label = match (&self.head, &self.shared) {
            (Some(head), _) => format!("runs-on={head}/{wants}"),
            (None, Some(tag)) => format!("runs-on/{wants}/tag={tag}"),
            (None, None) => format!("runs-on={}-{id}/{wants}", run.run_id()),
        };
        std::iter::once(label).chain(self.also.clone()).collect()
    }
}

/// The expectation about jobs.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) jobs: JobIds,
    pub(super) is: Option<&'static str>,
    pub(super) because: Option<String>,
    /// The setback that it had.
    pub(super) after: Option<String>,
    pub(super) within: Option<Duration>,
}

/// A line about the service.
#[derive(Clone, Debug)]
pub(super) enum Serving {
    Configure(ServiceConfigured),
    Serve(ServingProcess),
    Kill(String),
    Drain(String),
    Pause(String, Duration),
    Webhooks(WebhookTravel),
    Queue(QueueJobs),
    Cancel(JobIds),
    Await { jobs: JobIds, within: Duration },
    Pool(PoolLine),
    AwaitPool { name: PoolName, within: Duration },
}

const OUTCOMES: [(&str, &str); 6] = [
    ("waiting", "waiting"),
    ("running", "running"),
    ("completed", "completed"),
    ("cancelled", "cancelled"),
    ("failed", "failed"),
    ("told", "told"),
];

/// `service [reuse=large] [trust=octo] [on-unfulfillable=cancel] [cap=1] [busy=2]`
pub(super) fn service(words: &mut Words) -> Result<Verb, Misspelt> {
    const ANSWERS: [(&str, bool); 2] = [("annotate", false), ("cancel", true)];
    let number = |word: Word| word.number();
    Ok(Verb::Serving(Serving::Configure(ServiceConfigured {
        reuse: words.option("reuse").map(|word| ClassName::new(&word.text)),
        trust: words.option("trust").map(|word| word.text),
        cancels: words
            .option("on-unfulfillable")
            .map_or(Ok(false), |word| word.one_of("answer", &ANSWERS))?,
        cap: words.option("cap").map(number).transpose()?,
        busy: words.option("busy").map(number).transpose()?,
    })))
}

/// `serve NAME [dies-at=] [dies-after=]`
pub(super) fn serve(words: &mut Words) -> Result<Verb, Misspelt> {
    let name = words.plain("the process's name")?.text;
    let at = words.option("dies-at").map(|word| death(&word)).transpose()?;
    let after = words.option("dies-after").map(|word| word.time()).transpose()?;
    let death = at.or(after.map(Death::After));
    Ok(Verb::Serving(Serving::Serve(ServingProcess { name, death })))
}

pub(super) fn kill(words: &mut Words) -> Result<Verb, Misspelt> {
    Ok(Verb::Serving(Serving::Kill(words.plain("a process's name")?.text)))
}

/// `pause NAME by=90s`: the process stops, and goes on after that time.
pub(super) fn pause(words: &mut Words) -> Result<Verb, Misspelt> {
    let name = words.plain("a process's name")?.text;
    Ok(Verb::Serving(Serving::Pause(name, words.needed("by")?.time()?)))
}

pub(super) fn drain(words: &mut Words) -> Result<Verb, Misspelt> {
    Ok(Verb::Serving(Serving::Drain(words.plain("a process's name")?.text)))
}

/// `webhooks well`, or how badly; `webhooks late=5m`.
pub(super) fn webhooks(words: &mut Words) -> Result<Verb, Misspelt> {
    const WAYS: [(&str, WebhookTravel); 6] = [
        ("well", WebhookTravel::Well),
        ("lost", WebhookTravel::Lost),
        ("unsent", WebhookTravel::Unsent),
        ("twice", WebhookTravel::Twice),
        ("kept", WebhookTravel::Kept),
        ("backwards", WebhookTravel::Backwards),
    ];
    let way = match words.option("late") {
        Some(word) => WebhookTravel::Late(word.time()?),
        None => words.plain("how webhooks travel")?.one_of("way for webhooks", &WAYS)?,
    };
    Ok(Verb::Serving(Serving::Webhooks(way)))
}

/// `job 71 [count=] [repository=] [runner=|pool=] [shared=] [head=] [also=] [lasts=] [run=]
/// [fork=yes] [dependabot=yes] [public=yes] [installation=9]`
pub(super) fn job(words: &mut Words) -> Result<Verb, Misspelt> {
    /// The default, for scenarios in which the length does not matter.
    const LASTS: Duration = Duration::from_secs(60);
    let jobs = ids(words)?;
    let text = |word: Word| word.text;
    let pool = words.option("pool").map(|word| format!("pool={}", word.text));
    let runner = words.option("runner").map_or_else(|| String::from("large"), text);
    let mut answer = |name| -> Result<bool, Misspelt> {
        let word = words.option(name);
        let answer = word.map(|word| word.one_of("answer", &[("yes", true), ("no", false)]));
        Ok(answer.transpose()?.unwrap_or(false))
    };
    let (is_fork, is_dependabot) = (answer("fork")?, answer("dependabot")?);
    let is_public = answer("public")?;
    let origin = match (is_fork, is_dependabot) {
        (true, _) => Origin::Fork,
        (false, true) => Origin::Dependabot,
        (false, false) => Origin::Own,
    };
    Ok(Verb::Serving(Serving::Queue(QueueJobs {
        jobs,
        repository: words.option("repository").map_or_else(|| String::from("octo/main"), text),
        run: words.option("run").map(text),
        lasts: words.option("lasts").map_or(Ok(LASTS), |word| word.time())?,
        origin,
        is_public,
        installation: words.option("installation").map(|word| word.number()).transpose()?,
        wants: pool.unwrap_or_else(|| format!("runner={runner}")),
        shared: words.option("shared").map(text),
        head: words.option("head").map(text),
        also: words.option("also").map(text),
    })))
}

pub(super) fn cancel_job(words: &mut Words) -> Result<Verb, Misspelt> {
    Ok(Verb::Serving(Serving::Cancel(ids(words)?)))
}

/// `await job 71 [count=] [within=]`
pub(super) fn await_jobs(words: &mut Words, within: Duration) -> Result<Verb, Misspelt> {
    let jobs = ids(words)?;
    let within = words.option("within").map_or(Ok(within), |word| word.time())?;
    Ok(Verb::Serving(Serving::Await { jobs, within }))
}

/// `await pool ci [within=]`
pub(super) fn await_pool(words: &mut Words, within: Duration) -> Result<Verb, Misspelt> {
    let name = PoolName::new(&words.plain("a pool's name")?.text);
    let within = words.option("within").map_or(Ok(within), |word| word.time())?;
    Ok(Verb::Serving(Serving::AwaitPool { name, within }))
}

/// `expect job 71 [count=] [completed] [because="text"] [after=ceiling] [within=30s]`
pub(super) fn expected(words: &mut Words) -> Result<Expected, Misspelt> {
    let jobs = ids(words)?;
    let is = words.more().map(|word| word.one_of("end of a job", &OUTCOMES)).transpose()?;
    let because = words.option("because").map(|word| word.text);
    let after = words.option("after").map(|word| word.text);
    let within = words.option("within").map(|word| word.time()).transpose()?;
    if is.is_none() && after.is_none() && because.is_none() && within.is_none() {
        return Err(words.after().wrong("an expectation is missing, such as completed"));
    }
    Ok(Expected { jobs, is, because, after, within })
}

fn ids(words: &mut Words) -> Result<JobIds, Misspelt> {
    let first = words.plain("a job's number, such as 71,")?.number()?;
    let count = words.option("count").map_or(Ok(1), |word| word.number())?;
    Ok(JobIds { first, count })
}
