//! `bullpen pools`: shows each pool's target, machines, notes and last actions.
//!
//! Not here: the actions that a plan has now (`plan`).

use std::collections::BTreeMap;

use bullpen_core::ids::PoolName;
use bullpen_core::instance::standby::{StandbyStatus, standby_status};
use bullpen_core::instance::{Record, State, Tier};
use bullpen_core::pool::{ActionTaken, Blueprints, Note, OperatorOrder, PoolMode};
use bullpen_core::ports::{Fault, Ports};
use bullpen_core::schedule::Target;
use bullpen_core::spec_hash::drifted;
use bullpen_core::time::Timestamp;
use bullpen_engine::Stack;
use bullpen_engine::pools::{SurveyedPool, survey};
use serde_json::{Value, json};

use super::view::{self, PoolsCommand, PoolsView, unreadable};
use super::words;
use crate::exit::Exit;
use crate::inputs::{CommonArgs, Environment};
use crate::render;
use crate::runtime::GithubAccess;
use crate::table::count;
use crate::workflow::Failure;

/// The number of last actions that the text shows.
const ACTIONS_SHOWN: usize = 4;

/// Shows every pool.
pub(super) async fn show(args: &CommonArgs, environment: &Environment) -> Result<Exit, Failure> {
    view::run(args, environment, ShowPools).await
}

struct ShowPools;

impl PoolsCommand for ShowPools {
    async fn run<P: Ports<Forge = GithubAccess>>(
        self,
        view: PoolsView<P>,
    ) -> Result<Exit, Failure> {
        let PoolsView { stack, configured, place, json } = view;
        let configured = configured.map_err(|failure| Failure {
            hint: failure
                .hint
                .or_else(|| Some("without --config it shows the pools in the ledger".to_owned())),
            ..failure
        })?;
        let pools = pool_summaries(&stack, configured.as_ref()).await;
        let pools = pools.map_err(|fault| unreadable(&fault))?;
        let source = configured.is_some().then_some(place);
        if json {
            let pools: Vec<Value> = pools.iter().map(PoolSummary::json).collect();
            let object = json!({"stack": stack.name, "configuration": source, "pools": pools});
            render::json(&object.to_string());
            return Ok(Exit::Done);
        }
        let now = stack.now();
        let texts: Vec<String> = pools.iter().map(|pool| pool.text(now)).collect();
        render::page(&if texts.is_empty() { "no pools".to_owned() } else { texts.join("\n\n") });
        render::talk_page(&match source {
            Some(place) => format!("\nstack {}, configured in {place}", stack.name),
            None => format!(
                "\nstack {}, from the ledger alone: no configuration given (--config FILE)",
                stack.name
            ),
        });
        Ok(Exit::Done)
    }
}

/// An operator's view of a machine's state, in the order of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Hot,
    Stopped,
    Released,
    WarmingUp,
    ReadyToStop,
    Detached,
    Error,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Hot,
        Self::Stopped,
        Self::Released,
        Self::WarmingUp,
        Self::ReadyToStop,
        Self::Detached,
        Self::Error,
    ];

    /// The status of a record, or the tier if the machine is ready.
    fn of(record: &Record) -> Option<Self> {
        Some(match (standby_status(record)?, &record.state) {
            (StandbyStatus::Ready, State::Idle { tier: Tier::Stopped, .. }) => Self::Stopped,
            (StandbyStatus::Ready, State::Idle { tier: Tier::Released, .. }) => Self::Released,
            (StandbyStatus::Ready, _) => Self::Hot,
            (StandbyStatus::WarmingUp, _) => Self::WarmingUp,
            (StandbyStatus::ReadyToStop, _) => Self::ReadyToStop,
            (StandbyStatus::Detached, _) => Self::Detached,
            (StandbyStatus::Error, _) => Self::Error,
        })
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Stopped => "stopped",
            Self::Released => "released",
            Self::WarmingUp => StandbyStatus::WarmingUp.as_str(),
            Self::ReadyToStop => StandbyStatus::ReadyToStop.as_str(),
            Self::Detached => StandbyStatus::Detached.as_str(),
            Self::Error => StandbyStatus::Error.as_str(),
        }
    }
}

/// One pool as the command shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PoolSummary {
    /// The pool's name.
    pub(crate) name: PoolName,
    mode: &'static str,
    /// Why the service cannot keep it.
    unkept: Option<String>,
    target: Option<Target>,
    machines: BTreeMap<Kind, u32>,
    outdated: u32,
    notes: Vec<Note>,
    /// The number of actions that a plan has now; `None` without a configuration.
    due: Option<usize>,
    last_actions: Vec<ActionTaken>,
}

/// Every pool that is configured or has a journal, in the order of their names.
pub(crate) async fn pool_summaries<P: Ports>(
    stack: &Stack<P>,
    configured: Option<&Blueprints>,
) -> Result<Vec<PoolSummary>, Fault> {
    let none = Blueprints::default();
    let by = configured.unwrap_or(&none);
    let names = view::names(stack, by).await?;
    let found = survey(stack, by, &names).await?.complete()?;
    Ok(found.iter().map(|found| PoolSummary::of(found, configured)).collect())
}

impl PoolSummary {
    fn of(found: &SurveyedPool, configured: Option<&Blueprints>) -> Self {
        let unkept = configured.and_then(|by| by.unbuildable.get(&found.pool)).cloned();
        let is_planned = configured.is_some() && unkept.is_none();
        let SurveyedPool { journal, plan, desired, .. } = found;
        let mut machines = BTreeMap::new();
        let mut outdated = 0;
        for instance in &found.observed.instances {
            if let Some(kind) = Kind::of(&instance.record) {
                *machines.entry(kind).or_default() += 1;
                let is_old = drifted(&instance.record.facts.spec_hash, &desired.spec_hash);
                outdated += u32::from(is_old && kind != Kind::Detached);
            }
        }
        Self {
            name: found.pool.clone(),
            mode: mode(found, configured.is_some(), unkept.is_some()),
            target: if is_planned { Some(desired.target.clone()) } else { journal.target.clone() },
            machines,
            outdated,
            notes: if is_planned { plan.notes.clone() } else { journal.notes.clone() },
            due: is_planned.then_some(plan.actions.len()),
            last_actions: journal.deeds.iter().rev().cloned().collect(),
            unkept,
        }
    }

    fn count(&self, kind: Kind) -> u32 {
        self.machines.get(&kind).copied().unwrap_or(0)
    }

    /// Whether it has the hot and stopped machines of its target.
    pub(crate) fn is_full(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            let (hot, stopped) = (self.count(Kind::Hot), self.count(Kind::Stopped));
            target.hot <= hot && target.stopped <= stopped
        })
    }

    /// Its machines in a few words.
    pub(crate) fn machines(&self) -> String {
        let kinds = Kind::ALL.into_iter().filter(|kind| self.count(*kind) > 0);
        let counts = kinds.map(|kind| format!("{} {}", self.count(kind), kind.as_str()));
        let counts: Vec<String> = counts.collect();
        let outdated = match self.outdated {
            0 => String::new(),
            count => format!("; outdated: {count}"),
        };
        if counts.is_empty() { "none".to_owned() } else { counts.join(", ") + &outdated }
    }

    /// The text for people.
    pub(crate) fn text(&self, now: Timestamp) -> String {
        let mut text = vec![format!("{}  {}", self.name, self.mode)];
        let mut add = |label: &str, words: &str| text.push(words::lines(label, words));
        if let Some(why) = &self.unkept {
            add("because", &format!("{why}: it stays as it was; `bullpen lint` shows more"));
        }
        if let Some(Target { entry, hot, stopped }) = &self.target {
            let entry = entry.as_ref().map_or_else(
                || "no entry of the schedule applies".to_owned(),
                |entry| format!("entry {entry:?}"),
            );
            add("target", &format!("{hot} hot, {stopped} stopped ({entry})"));
        }
        add("machines", &self.machines());
        for (index, note) in self.notes.iter().enumerate() {
            add(if index == 0 { "waits" } else { "" }, &note.to_string());
        }
        if let Some(due @ 1..) = self.due {
            let due = count(due, "action");
            add("due", &format!("{due}: see `bullpen pools plan {}`", self.name));
        }
        for (index, action) in self.last_actions.iter().take(ACTIONS_SHOWN).enumerate() {
            add(if index == 0 { "done" } else { "" }, &words::action_taken(action, now));
        }
        text.join("\n")
    }

    /// The object for programs.
    pub(crate) fn json(&self) -> Value {
        let machines: BTreeMap<&str, u32> =
            Kind::ALL.into_iter().map(|kind| (kind.as_str(), self.count(kind))).collect();
        let words: Vec<String> = self.notes.iter().map(ToString::to_string).collect();
        json!({
            "pool": self.name,
            "mode": self.mode,
            "unkept": self.unkept,
            "target": self.target,
            "machines": machines,
            "outdated": self.outdated,
            "notes": self.notes,
            "words": words,
            "due": self.due,
            "deeds": self.last_actions,
        })
    }
}

/// How the service treats the pool, in a word.
fn mode(found: &SurveyedPool, is_known: bool, is_unkept: bool) -> &'static str {
    match (is_known, &found.journal.order) {
        _ if is_unkept => "left-alone",
        (false, Some(OperatorOrder::Pause)) => "paused",
        (false, Some(OperatorOrder::Drain)) => "draining",
        (false, None) => "remembered",
        (true, _) => match found.desired.mode {
            PoolMode::Kept => "kept",
            PoolMode::Paused => "paused",
            PoolMode::Draining => "draining",
            PoolMode::Removed => "removed",
        },
    }
}
