//! The load of a seed's world: which troubles occur and how often, and which requests are made.
//!
//! Each kind of trouble is on in about half of all seeds, so that some worlds have only one kind
//! and the other kinds do not hide its consequences.
//!
//! Not here: running a world ([`crate::kernel`]).

use std::time::Duration;

use bullpen_core::class::{RunnerClass, Usage};
use bullpen_core::creation::{Ceiling, Scope};
use bullpen_core::ids::{RequestId, TrustGroup};
use bullpen_core::limits::Limits;
use bullpen_core::request::{OnPartial, Request, TypePattern};
use bullpen_core::time::Timestamp;

use crate::dice::Dice;
use crate::machine::AgentBehaviour;
use crate::model::fleet::Delays;
use crate::wire::Weather;
use crate::world::{CALM, Climate};

/// The runner classes that requests ask for.
pub fn classes() -> Vec<RunnerClass> {
    RunnerClass::defaults().into_iter().take(2).collect()
}

/// Draws a climate.
pub fn climate(dice: &Dice) -> Climate {
    let odds = |most: u64| {
        let on = dice.chance(500);
        let strength = u32::try_from(dice.below(most)).unwrap_or(0) + 1;
        if on { strength } else { 0 }
    };
    let time = |most: Duration| {
        let on = dice.chance(500);
        let length = dice.between(Duration::ZERO, most);
        if on { length } else { Duration::ZERO }
    };
    let control = Weather {
        latency_max: dice.between(Duration::from_millis(1), Duration::from_millis(120)),
        throttle: odds(60),
        refuse: odds(40),
        lose_answer: odds(60),
        land_late: odds(25),
        late_max: Duration::from_secs(20),
        false_empty: odds(400),
        deliver_twice: odds(200),
        lag_max: time(Duration::from_secs(10)),
        ..CALM.control
    };
    let weak = dice.chance(500);
    Climate {
        agents: control,
        control,
        temper: AgentBehaviour {
            warm_up_fails: odds(120),
            warm_up_slow: odds(80),
            warm_up_hangs: odds(60),
            dies: odds(300),
            hangs: odds(200),
            mute: odds(60),
            skew_max: time(Duration::from_secs(30)),
            skewed: odds(150),
            exits: odds(150),
            forgotten: odds(150),
            ..CALM.temper
        },
        delays: Delays {
            boot_max: CALM.delays.boot_max + time(Duration::from_secs(60)),
            visible_after_max: time(Duration::from_secs(30)),
            ..CALM.delays
        },
        partial: odds(300),
        skew_max: time(Duration::from_secs(10)),
        crash: odds(600),
        weak,
        ..CALM
    }
}

/// Draws limits: in some worlds a machine wears out after few jobs.
pub fn limits(dice: &Dice) -> Limits {
    let few = 1 + u32::try_from(dice.below(4)).unwrap_or(0);
    let uses_max = if dice.chance(500) { few } else { Limits::DEFAULT.uses_max };
    Limits { uses_max, ..Limits::DEFAULT }
}

/// Draws on how many of a thousand machines the runner program updates itself.
pub fn updates(dice: &Dice) -> u32 {
    let strength = u32::try_from(dice.below(400)).unwrap_or(0) + 1;
    if dice.chance(250) { strength } else { 0 }
}

/// Draws when the image changes, if it does.
pub fn new_image(dice: &Dice, lasts: Duration) -> Option<Duration> {
    dice.chance(300).then(|| dice.between(Duration::ZERO, lasts))
}

/// Draws ceilings; some are low enough to be reached.
pub fn ceilings(dice: &Dice) -> Vec<Ceiling> {
    let max = 6 + u32::try_from(dice.below(30)).unwrap_or(0);
    vec![Ceiling { scope: Scope::Stack, max }]
}

/// The ceiling of a big world: its pools fill up beside its jobs.
pub fn big_ceilings() -> Vec<Ceiling> {
    vec![Ceiling { scope: Scope::Stack, max: 200 }]
}

/// A trouble of the world as a whole.
#[derive(Clone, Debug)]
pub enum Calamity {
    /// GitHub is down for this long.
    Outage(Duration),
    /// The cloud is out of one offering until the world heals.
    Shortage,
    /// The cloud has only this many more machines, of all types, for this long.
    NoCapacity(u32, Duration),
    /// The account's vCPU quota is this low until the world heals.
    Quota(Usage, u32),
    /// One machine dies.
    LostMachine,
    /// The cloud reclaims this many spot machines of a thousand, after a notice.
    SpotReclaim(u32),
    /// GitHub allows only this many points a minute, for this long.
    Points(u32, Duration),
}

/// Draws the calamities and their times, in order.
pub fn calamities(dice: &Dice, lasts: Duration) -> Vec<(Duration, Calamity)> {
    let count = if dice.chance(500) { 1 + dice.below(16) } else { 0 };
    let mut drawn: Vec<_> = (0..count)
        .map(|_| {
            let at = dice.between(Duration::ZERO, lasts);
            let length = dice.between(Duration::from_secs(20), Duration::from_secs(240));
            let few = |most| u32::try_from(dice.below(most)).unwrap_or(0);
            let calamity = match dice.below(8) {
                // Most end before a deadline passes: there the blame for a failure matters.
                0 | 7 => Calamity::Outage(dice.delay(Duration::from_secs(3), 4 * length)),
                1 => Calamity::Shortage,
                2 => Calamity::NoCapacity(few(4), length),
                3 if dice.chance(500) => Calamity::Quota(Usage::Spot, few(16)),
                3 => Calamity::Quota(Usage::OnDemand, 8 + few(64)),
                4 => Calamity::SpotReclaim(100 + few(900)),
                5 => Calamity::Points(10 + few(60), 4 * length),
                _ => Calamity::LostMachine,
            };
            (at, calamity)
        })
        .collect();
    drawn.sort_by_key(|(at, _)| *at);
    drawn
}

/// One workflow run: its time, its request and its behaviour.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// When it starts.
    pub arrives: Duration,
    /// Its request; the deadline is set when it starts.
    pub request: Request,
    /// Whether its jobs are queued before it provisions.
    pub eager: bool,
    /// How long each job runs; a matrix has more jobs than the request has runners.
    pub jobs: Vec<Duration>,
    /// How long after its end it is run again as another attempt, if it is.
    pub rerun_after: Option<Duration>,
    /// The await at which its provision dies, if it does.
    pub provision_fuse: Option<u64>,
    /// The await at which its release dies, if it does.
    pub release_fuse: Option<u64>,
    /// Whether a release follows when provision failed or died.
    pub releases_after_failure: bool,
    /// How long after its start it is cancelled, if it is.
    pub cancelled_after: Option<Duration>,
    /// Whether a provision that failed or died is run again under the same id.
    pub again: bool,
    /// How long after the first a second process provisions the same request, if one does.
    pub doubled_after: Option<Duration>,
}

/// How long the rate of arrivals stays the same.
const TIDE: Duration = Duration::from_secs(15 * 60);

/// Draws the workflow runs of a world whose faults last this long: quiet and busy times, and bursts
/// in which several runs arrive at once.
pub fn workflows(
    dice: &Dice,
    climate: &Climate,
    limits: &Limits,
    lasts: Duration,
) -> Vec<Workflow> {
    let mut drawn: Vec<Workflow> = Vec::new();
    for arrives in arrivals(dice, lasts) {
        let number = u64::try_from(drawn.len()).unwrap_or(u64::MAX);
        drawn.push(workflow(dice, climate, limits, arrives, number));
    }
    drawn
}

fn arrivals(dice: &Dice, lasts: Duration) -> Vec<Duration> {
    let mut arrivals = Vec::new();
    let mut tide = Duration::ZERO;
    while tide < lasts {
        let end = (tide + TIDE).min(lasts);
        let busy = [0, 2, 4, 8, 12];
        let most = dice.pick(&busy).copied().unwrap_or(1);
        arrivals.extend((0..dice.below(most + 1)).map(|_| dice.between(tide, end)));
        if dice.chance(250) {
            let burst = dice.between(tide, end);
            let close = || dice.between(Duration::ZERO, Duration::from_secs(5));
            arrivals.extend((0..3 + dice.below(6)).map(|_| burst + close()));
        }
        tide = end;
    }
    arrivals.sort();
    arrivals
}

fn workflow(
    dice: &Dice,
    climate: &Climate,
    limits: &Limits,
    arrives: Duration,
    number: u64,
) -> Workflow {
    // Half of the processes that die do so in their first calls, where machines change owners.
    let fuse = |most: u64| {
        let on = dice.chance(climate.crash);
        let awaits = dice.below(if dice.chance(500) { most / 12 } else { most });
        on.then_some(awaits)
    };
    let classes = classes();
    // Most requests are alike, so that they compete for the same machines.
    let class = if dice.chance(800) { classes.first() } else { classes.last() };
    let class = class.cloned().expect("there are classes");
    let patterns: &[&str] = if dice.chance(700) { &["c*", "m*", "r*"] } else { &["m*"] };
    let spot = dice.chance(200);
    // GitHub does not know a run outside a workflow: only deadlines release its machines.
    let at_github = dice.chance(500);
    let run = if at_github { (number + 1).to_string() } else { format!("local{number}") };
    let group = if dice.chance(800) { "octo/main" } else { "octo/other" };
    let request = Request {
        id: RequestId::new(format!("{run}.1.build")),
        incarnation: 0,
        class,
        count: 1 + u32::try_from(dice.below(4)).unwrap_or(0),
        usage: if spot { Usage::Spot } else { Usage::OnDemand },
        allowed_types: patterns.iter().map(|pattern| TypePattern::new(pattern)).collect(),
        trust: TrustGroup::new(group),
        deadline: Timestamp::EPOCH.after(limits.request_deadline),
        on_partial: OnPartial::TopUp,
        on_demand_fallback: true,
        spec_hash: None,
        ephemeral: false,
        only_unused: None,
    };
    let matrix = dice.chance(100);
    let jobs = if matrix { 6 + dice.below(14) } else { dice.below(6) };
    let sometimes = |odds| {
        let on = dice.chance(odds);
        let after = dice.between(Duration::ZERO, Duration::from_secs(90));
        on.then_some(after)
    };
    let job = || dice.delay(Duration::from_secs(5), Duration::from_secs(600));
    Workflow {
        arrives,
        eager: dice.chance(300),
        jobs: (0..jobs).map(|_| job()).collect(),
        request,
        provision_fuse: fuse(400),
        release_fuse: fuse(120),
        releases_after_failure: dice.chance(600),
        cancelled_after: sometimes(120),
        again: dice.chance(300),
        doubled_after: sometimes(60),
        rerun_after: sometimes(100),
    }
}
