//! Every interleaving of the ownership protocol in a small world, breadth first.
//!
//! One instance; two claim workers, a releaser, a reaper, a pool's manager, all of which may stall or
//! crash anywhere; an agent that sees only its mailbox and may die and start again; GitHub, which may
//! start a job on a registered listener at any time; start, stop and terminate calls that land late;
//! assignments and claims whose answers are lost. [`explore`] visits every state that can be reached
//! within the bounds of a [`Config`] and reports the shortest way to a state that breaks a [`Property`].
//!
//! *Production code*, called as it is: every change of the record (`Record::on`, with its authorities
//! and proofs), every change of the inbox (`Inbox::accept`), every conclusion that no listener is left
//! (`prove_unexposed`), every decision about a tenure (`core::tenure`: `settle`, `Prepare`, `due`,
//! `end_of_tenure`, `Release`, with the checks of `core::claim`), every decision of a pool's manager
//! (`core::pool::plan`), the agent's whole life (`bullpen_agent::agent_life::AgentLife`, with `react`).
//!
//! *Mirrors of production code*: performing the effects that a tenure or a plan asks for, as
//! `engine::provision::worker` (`claimer`), `engine::release`, `engine::reap` and `engine::reconcile`
//! (`release`), and `engine::pools` (`manager`) do, the small loop around a life in `bullpen_agent::agent` (`agent`),
//! and the condition of a ledger's write, which is the revision. The engine is `async` code over ports
//! and cannot be stepped as a function; the seeds of the simulator run it as it is.
//!
//! *Time* is a few ticks; every deadline that matters is one tick away, and the clock skew is one tick,
//! by which the agent's clock is behind. *Bounds*: claims, ticks, faults, restarts, jobs.
//!
//! Not here: more than one instance, machines that are being created, JIT configurations, the
//! end of an idle agent; GitHub giving a job between the agent's last look at a listener and its end.

mod actors;
mod check;
mod fingerprint;
mod rules;
mod search;
mod world;

use std::fmt;

use bullpen_core::instance::Tier;

pub use rules::{Property, Rule};
pub use search::Progress;

/// What is explored, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Claim workers: none, one or two.
    pub claimers: u8,
    /// Whether both work for the same owner.
    pub one_owner: bool,
    /// Whether the releaser sees its release through, as the reaper does; a cancelled one leaves it.
    pub two_finish: bool,
    /// How the machine is idle in the beginning.
    pub tier: Tier,
    /// Answers that may be lost or not given.
    pub faults: u8,
    /// How often the agent may die and start again.
    pub restarts: u8,
    /// Jobs that GitHub has.
    pub jobs: u8,
    /// Claims and takeovers that succeed at most.
    pub claims: u8,
    /// How often time passes.
    pub ticks: u8,
    /// How many steps from the beginning; without it, all.
    pub depth: Option<u32>,
    /// How many states at most.
    pub states_max: usize,
    /// The rule that is switched off.
    pub off: Option<Rule>,
}

impl Config {
    /// A small world with a machine of this tier: no faults, all rules.
    pub const fn small(tier: Tier) -> Self {
        Self {
            claimers: 2,
            one_owner: false,
            two_finish: false,
            tier,
            faults: 0,
            restarts: 0,
            jobs: 1,
            claims: 2,
            ticks: 2,
            depth: None,
            states_max: 50_000_000,
            off: None,
        }
    }

    fn holds(&self, rule: Rule) -> bool {
        self.off != Some(rule)
    }
}

/// How a property is broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterexample {
    /// Which.
    pub property: Property,
    /// By which steps, each with what is true after it.
    pub steps: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:3}. {step}", index + 1)?;
        }
        write!(f, "so {}", self.property)
    }
}

/// How far an exploration came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// States visited.
    pub states: usize,
    /// Steps taken, to new states or known ones.
    pub steps: usize,
    /// Steps from the beginning to the last level.
    pub depth: u32,
    /// States of the last level.
    pub frontier: usize,
    /// What is kept of visited states, in bytes.
    pub bytes: usize,
    /// Whether nothing was left to visit.
    pub complete: bool,
    /// What is broken, by the shortest way.
    pub found: Option<Counterexample>,
}

/// Explores. A rule that is a part of production code can be off only in a build with planted bugs
/// ([`Rule::can_be_off`]).
pub fn explore(config: &Config, progress: Progress<'_>) -> Explored {
    #[cfg(sabotage)]
    if let Some(bug) = config.off.and_then(Rule::planted) {
        return bullpen_core::sabotage::with(bug, || search::search(config, progress));
    }
    search::search(config, progress)
}
