//! The service of a seed's world: its configuration, its replicas, the odds of lost webhooks, and
//! the jobs of several repositories.
//!
//! Drawn from separate streams: a world without jobs stays as it was before jobs were added.
//!
//! Not here: running it ([`super`]).

use std::collections::BTreeSet;
use std::time::Duration;

use bullpen_core::class::Usage;
use bullpen_core::config::extension::OnUnfulfillable;
use bullpen_core::config::runner::Reuse;
use bullpen_core::config::runs_on::{self, Config};
use bullpen_core::ids::{ClassName, JobId, Repository, RunAttempt, TrustGroup};
use bullpen_core::job::fair::Shares;
use bullpen_core::job::{JobDetails, Origin, Provenance};
use bullpen_core::scope::ServiceScope;
use bullpen_engine::jobs::JobSettings;

use super::pools::{self, Pools, Timeline};
use crate::dice::Dice;

/// Of a thousand seeds, how many run the service.
const SERVING: u32 = 400;
/// Of a thousand services, how many have forks that ask for labels of other jobs.
const HOSTILE: u32 = 500;
/// Of a thousand services, how many are big: fifty repositories, and twenty pools. Each costs as much as
/// ten others at least.
const BIG: u32 = 20;
/// How many repositories a big one has.
const BIG_REPOSITORIES: u32 = 50;
/// The label of jobs outside this stack, which hostile jobs want on their runners.
pub const FOREIGN_LABEL: &str = "prod-deploy";
/// Of a thousand repositories, how many are public.
const PUBLIC: u32 = 700;
/// Of a thousand runs of public repositories, how many are Dependabot's.
const DEPENDABOT: u32 = 100;
/// Of a thousand runs, how many had a webhook before their jobs.
const ANNOUNCED: u32 = 500;
/// The id of the first run.
const FIRST_RUN: usize = 70_000;

/// The configuration of all worlds: the load's classes, and a pool without machines, whose jobs all
/// overflow.
const RUNS_ON: &str = "
runners:
  large:
    cpu: 2
    ram: 4
  xlarge:
    cpu: 4
    ram: 8
pools:
  ci:
    runner: large
    schedule:
      - {name: always, hot: 0, stopped: 0}
";

/// The class whose machines are reused, if any are.
const REUSED: &str = "large";

/// The odds of webhook faults, each out of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct WebhookOdds {
    /// Not taken, and listed as failed by GitHub.
    pub lost: u32,
    /// Never sent, and not listed by GitHub.
    pub unsent: u32,
    /// Late, by up to [`WebhookOdds::late_max`].
    pub late: u32,
    /// The longest delay.
    pub late_max: Duration,
    /// Sent again although the service took it.
    pub twice: u32,
}

impl WebhookOdds {
    /// Whether a webhook may come late, or never.
    pub(crate) const fn lose_any(self) -> bool {
        self.lost > 0 || self.unsent > 0 || self.late > 0
    }
}

/// One job.
#[derive(Clone, Debug)]
pub struct JobPlan {
    /// When GitHub queues it.
    pub arrives: Duration,
    /// Its id.
    pub id: JobId,
    /// Its details.
    pub about: JobDetails,
    /// How long it runs.
    pub lasts: Duration,
    /// How long after it was queued it is cancelled, if it is.
    pub cancelled_after: Option<Duration>,
    /// The origin of its code.
    pub origin: Origin,
}

/// The service of one world.
#[derive(Clone, Debug)]
pub struct ServicePlan {
    /// The configuration.
    pub config: Config,
    /// The pools' configuration over time, where it changes.
    pub timeline: Timeline,
    /// The shares of the repositories.
    pub shares: Shares,
    /// The repositories and installations whose jobs it takes.
    pub scope: ServiceScope,
    /// The repositories it serves.
    pub repositories: Vec<Repository>,
    /// The public ones of them. Only these have forks, and Dependabot.
    pub public: BTreeSet<Repository>,
    /// The number of replicas.
    pub replicas: u64,
    /// The odds of webhook faults, while there are faults.
    pub webhooks: WebhookOdds,
    /// The jobs, in the order they come.
    pub jobs: Vec<JobPlan>,
    /// Whether it has many repositories and pools.
    pub is_big: bool,
}

impl ServicePlan {
    /// The settings of every process of the service.
    pub fn settings(&self) -> JobSettings {
        self.settings_with(self.timeline.at(Duration::ZERO).as_ref())
    }

    /// The settings with this configuration of pools.
    pub fn settings_with(&self, pools: Option<&Pools>) -> JobSettings {
        let mut config = self.config.clone();
        if let Some(pools) = pools {
            config.pools.clone_from(pools);
        }
        let mut settings =
            JobSettings::new("production", "eu-west-1", Some(config)).within(self.scope.clone());
        settings.shares = self.shares.clone();
        settings
    }

    /// The trust group of reused machines.
    pub fn trust(&self) -> Option<TrustGroup> {
        self.config.runners.get(&ClassName::new(REUSED))?.trust.clone()
    }
}

/// Draws the service of a world whose faults last this long, if the world has one.
pub fn draw(seed: u64, lasts: Duration) -> Option<ServicePlan> {
    let dice = Dice::new(seed, "service");
    if !dice.chance(SERVING) {
        return None;
    }
    let mut repositories: Vec<Repository> =
        ["octo/main", "octo/other", "acme/app"].into_iter().map(Repository::new).collect();
    let shape = Dice::new(seed, "shape");
    let big = shape.chance(BIG).then_some(&shape);
    if big.is_some() {
        let more = 3..BIG_REPOSITORIES;
        repositories.extend(more.map(|number| Repository::new(format!("octo/r{number}"))));
    }
    let openness = Dice::new(seed, "openness");
    let open = repositories.iter().filter(|_| openness.chance(PUBLIC));
    let public: BTreeSet<Repository> = open.cloned().collect();
    let mut plan = ServicePlan {
        scope: ServiceScope::EVERYTHING,
        config: config(&dice),
        timeline: match big {
            Some(shape) => pools::draw_big(shape, lasts),
            None => pools::draw(&Dice::new(seed, "pools"), lasts),
        },
        shares: shares(&dice),
        replicas: 1 + dice.below(2),
        webhooks: webhook_odds(&dice),
        jobs: jobs((&dice, &openness, big), &repositories, &public, lasts),
        repositories,
        public,
        is_big: big.is_some(),
    };
    let hostile = hostile(&Dice::new(seed, "hostile labels"), &plan.jobs, &plan.public, lasts);
    plan.jobs.extend(hostile);
    Some(plan)
}

/// The configuration of every world, before draws change it.
pub fn base() -> Config {
    let read = runs_on::read(RUNS_ON.as_bytes());
    read.value().expect("the constant is a good configuration").clone()
}

fn config(dice: &Dice) -> Config {
    let mut config = base();
    let reuse = dice.chance(600).then(Reuse::default);
    let trust = dice.chance(500).then(|| TrustGroup::new("octo/main"));
    let usage = dice.chance(300).then_some(Usage::Spot);
    if let Some(large) = config.runners.get_mut(&ClassName::new(REUSED)) {
        (large.reuse, large.trust, large.usage) = (reuse, trust, usage);
    }
    if dice.chance(500) {
        config.on_unfulfillable = OnUnfulfillable::Cancel;
    }
    config
}

/// In some worlds a process works on so few jobs at once that their order matters.
fn shares(dice: &Dice) -> Shares {
    let few = |most| 1 + u32::try_from(dice.below(most)).unwrap_or(0);
    let (cap, more) = (few(3), few(3));
    if dice.chance(400) {
        Shares { cap, busy: cap + more, ..Shares::default() }
    } else {
        Shares::default()
    }
}

fn webhook_odds(dice: &Dice) -> WebhookOdds {
    let odds = |most: u64| {
        let on = dice.chance(500);
        let strength = u32::try_from(dice.below(most)).unwrap_or(0) + 1;
        if on { strength } else { 0 }
    };
    WebhookOdds {
        lost: odds(200),
        unsent: odds(100),
        late: odds(300),
        late_max: dice.between(Duration::from_secs(5), Duration::from_secs(900)),
        twice: odds(300),
    }
}

/// Jobs of one run: their time, repository and number.
struct Burst {
    at: Duration,
    repository: Repository,
    jobs: u64,
}

/// The origin of a run's code: a fork's if drawn, else by chance Dependabot's; both only in public
/// repositories.
fn origin(openness: &Dice, is_fork: bool, is_public: bool) -> Origin {
    let is_dependabot = openness.chance(DEPENDABOT);
    match (is_public, is_fork, is_dependabot) {
        (true, true, _) => Origin::Fork,
        (true, false, true) => Origin::Dependabot,
        _ => Origin::Own,
    }
}

fn jobs(
    (dice, openness, big): (&Dice, &Dice, Option<&Dice>),
    repositories: &[Repository],
    public: &BTreeSet<Repository>,
    lasts: Duration,
) -> Vec<JobPlan> {
    let mut drawn = Vec::new();
    for (number, burst) in bursts((dice, big), repositories, lasts).into_iter().enumerate() {
        let run = RunAttempt::new(format!("{}.1", FIRST_RUN + number));
        let is_fork = dice.chance(150);
        let origin = origin(openness, is_fork, public.contains(&burst.repository));
        // A webhook about the run came before the webhooks about its jobs.
        let announced = openness.chance(ANNOUNCED).then_some(origin);
        for _ in 0..burst.jobs {
            let id = JobId::new((500_000 + drawn.len()).to_string());
            let about = JobDetails {
                repository: burst.repository.clone(),
                run: run.clone(),
                name: format!("job {id}"),
                labels: vec![label((dice, big), &run, &id, &burst.repository)],
                commit: "0a1b".to_owned(),
                created_at: None,
                provenance: Provenance { origin: announced, visibility: None },
            };
            let after = dice.between(Duration::ZERO, Duration::from_secs(180));
            drawn.push(JobPlan {
                arrives: burst.at + dice.between(Duration::ZERO, Duration::from_secs(5)),
                id,
                about,
                lasts: dice.delay(Duration::from_secs(5), Duration::from_secs(600)),
                cancelled_after: dice.chance(100).then_some(after),
                origin,
            });
        }
    }
    drawn
}

fn bursts(
    (dice, big): (&Dice, Option<&Dice>),
    repositories: &[Repository],
    lasts: Duration,
) -> Vec<Burst> {
    let count = 1 + dice.below(8) + big.map_or(0, |shape| 8 + shape.below(12));
    let burst = |_| {
        let most = if dice.chance(250) { 24 } else { 4 };
        Burst {
            at: dice.between(Duration::ZERO, lasts),
            repository: dice.pick(repositories).cloned().expect("the list is not empty"),
            jobs: 1 + dice.below(most),
        }
    };
    (0..count).map(burst).collect()
}

/// The label that a job asks for. Jobs with equal labels may get each other's runners.
fn label(
    (dice, big): (&Dice, Option<&Dice>),
    run: &RunAttempt,
    id: &JobId,
    repository: &Repository,
) -> String {
    let pool = pools::name_of(big.map_or(0, |shape| shape.below(pools::BIG)));
    let own = format!("runs-on={}-{id}", run.run_id());
    match dice.below(20) {
        0..8 => format!("{own}/runner=large"),
        8..12 => {
            format!("runs-on/runner=large/tag={}", repository.as_str().replace('/', "-"))
        }
        12..14 => "runs-on/runner=large".to_owned(),
        14..16 => format!("{own}/runner=xlarge"),
        16..19 => format!("{own}/pool={pool}"),
        _ => format!("{own}/pool=nope"),
    }
}

/// Jobs of forks that try to catch other jobs: each asks for a runner with a label of another run,
/// or of jobs outside this stack.
fn hostile(
    dice: &Dice,
    jobs: &[JobPlan],
    public: &BTreeSet<Repository>,
    lasts: Duration,
) -> Vec<JobPlan> {
    let repository = Repository::new("octo/main");
    let open = public.contains(&repository);
    if !dice.chance(HOSTILE) {
        return Vec::new();
    }
    let job = |number: u64| {
        let victim = dice.pick(jobs).map_or("70000", |victim| victim.about.run.run_id());
        let labels = match dice.below(4) {
            0 => vec!["runs-on/runner=large".to_owned(), FOREIGN_LABEL.to_owned()],
            1 => vec!["runs-on/pool=ci".to_owned(), FOREIGN_LABEL.to_owned()],
            2 => vec![format!("runs-on={victim}/runner=large")],
            _ => vec!["runs-on/runner=large".to_owned(), format!("runs-on={victim}")],
        };
        let id = JobId::new((900_000 + number).to_string());
        JobPlan {
            arrives: dice.between(Duration::ZERO, lasts),
            about: JobDetails {
                repository: repository.clone(),
                run: RunAttempt::new(format!("{}.1", 99_000 + number)),
                name: format!("job {id}"),
                labels,
                commit: "0a1b".to_owned(),
                created_at: None,
                provenance: Provenance::default(),
            },
            id,
            lasts: dice.delay(Duration::from_secs(5), Duration::from_secs(600)),
            cancelled_after: None,
            origin: if open { Origin::Fork } else { Origin::Own },
        }
    };
    (0..=dice.below(4)).map(job).collect()
}
