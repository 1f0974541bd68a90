//! Pools in a world: their configuration, and their machines.
//!
//! Not here: the world (`world`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use bullpen_core::ids::PoolName;
use bullpen_core::instance::State;
use bullpen_core::ports::Ledger as _;
use serde_json::Value;

use crate::waiting::until;
use crate::world::{Served, World};

/// A service with short intervals and short stop fences, so that tests need not wait a minute.
pub(crate) const QUICK: &[(&str, &str)] = &[
    ("configuration", "100ms"),
    ("converge", "2s"),
    ("upkeep", "1s"),
    ("stop-fence", "1500ms"),
    ("stop-send-within", "500ms"),
    ("stop-call-timeout", "500ms"),
    ("clock-skew", "100ms"),
];

/// One pool's configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    name: &'static str,
    hot: u32,
    stopped: u32,
    version: u32,
    /// Its keys under `x-bullpen.pools`.
    more: &'static str,
}

pub(crate) const fn pool(name: &'static str, hot: u32, stopped: u32) -> Wanted {
    Wanted { name, hot, stopped, version: 1, more: "" }
}

impl Wanted {
    pub(crate) const fn version(self, version: u32) -> Self {
        Self { version, ..self }
    }

    pub(crate) const fn with(self, more: &'static str) -> Self {
        Self { more, ..self }
    }
}

/// A `runs-on.yml` with these pools of one runner; `runner` has additional keys of the runner.
pub(crate) fn file(runner: &str, pools: &[Wanted]) -> String {
    let mut text = format!("runners:\n  small: {{cpu: 2, ram: 4, family: c6i{runner}}}\n");
    let (mut wanted, mut more) = (String::new(), String::new());
    for Wanted { name, hot, stopped, version, more: said } in pools {
        let schedule = format!("[{{name: default, hot: {hot}, stopped: {stopped}}}]");
        let own = format!("{{runner: small, version: {version}, schedule: {schedule}}}");
        let _ = writeln!(wanted, "  {name}: {own}");
        if !said.is_empty() {
            let _ = writeln!(more, "    {name}: {{{said}}}");
        }
    }
    if !wanted.is_empty() {
        text = text + "pools:\n" + &wanted;
    }
    if !more.is_empty() {
        text = text + "x-bullpen:\n  pools:\n" + &more;
    }
    text
}

/// A pool's machines, by state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) hot: BTreeSet<String>,
    pub(crate) stopped: BTreeSet<String>,
    /// Machines that a job owns.
    pub(crate) in_use: BTreeSet<String>,
    /// Machines in a transition, with their state.
    pub(crate) passing: BTreeMap<String, String>,
}

impl Standing {
    fn put(&mut self, id: String, state: &str, tier: Option<&str>) {
        let set = match (state, tier) {
            ("idle", Some("hot")) => &mut self.hot,
            ("idle", Some("stopped")) => &mut self.stopped,
            ("claimed" | "running" | "releasing", _) => &mut self.in_use,
            _ => {
                self.passing.insert(id, state.to_owned());
                return;
            }
        };
        set.insert(id);
    }

    /// All hot and stopped machines.
    pub(crate) fn ready(&self) -> BTreeSet<String> {
        self.hot.union(&self.stopped).cloned().collect()
    }
}

impl World {
    /// A world with these pools.
    pub(crate) async fn keeping(config: &str) -> Self {
        Self::configured(config, QUICK).await
    }

    /// The fleet's own record of every machine that is not gone.
    pub(crate) fn fleet_records(&self) -> BTreeMap<String, Value> {
        let records = self.machines().into_iter().filter_map(|machine| {
            let text = fs::read_to_string(machine.join("machine.json")).ok()?;
            let record: Value = serde_json::from_str(&text).expect("it is written at once");
            let id = machine.file_name().expect("it has a name").to_string_lossy().into_owned();
            record["life"]["gone"].is_null().then_some((id, record))
        });
        records.collect()
    }

    /// A pool's machines now.
    pub(crate) async fn standing(&self, pool: &str) -> Standing {
        let mut standing = Standing::default();
        if self.on_files {
            let records = self.ledger().standing_by(&PoolName::new(pool)).await;
            for record in records.expect("it is readable").items {
                let tier = match record.state {
                    State::Idle { tier, .. } => Some(tier),
                    _ => None,
                };
                let tier = tier.map(|tier| serde_json::to_value(tier).expect("it is a word"));
                let tier = tier.as_ref().and_then(Value::as_str);
                standing.put(record.id.to_string(), record.state.name().as_str(), tier);
            }
            return standing;
        }
        let records = self.fleet_records();
        for one in self.status().await["instances"].as_array().expect("a list") {
            let (id, state) = (one["id"].as_str(), one["state"].as_str());
            let (id, state) = (id.expect("an id"), state.expect("a state"));
            if records.get(id).is_some_and(|machine| machine["facts"]["pool"] == pool) {
                standing.put(id.to_owned(), state, one["tier"].as_str());
            }
        }
        standing
    }

    /// Waits until a pool has exactly this many hot and stopped machines, in the ledger and in the
    /// fleet. Machines in use do not count.
    pub(crate) async fn reaches(&self, pool: &str, hot: usize, stopped: usize) -> Standing {
        until(&format!("{hot} hot and {stopped} stopped machines of {pool}"), async || {
            let standing = self.standing(pool).await;
            let is_reached = standing.hot.len() == hot
                && standing.stopped.len() == stopped
                && standing.passing.is_empty();
            (is_reached && self.is_so(pool, &standing)).then_some(standing)
        })
        .await
    }

    /// Whether the fleet has exactly these machines of a pool, running, stopped and tagged
    /// correctly.
    fn is_so(&self, pool: &str, standing: &Standing) -> bool {
        let mut records = self.fleet_records();
        records.retain(|_, machine| machine["facts"]["pool"] == pool);
        let known = standing.ready().union(&standing.in_use).cloned().collect();
        let is_ready = |id: &String| records[id]["tags"]["standby"] == "ready";
        records.keys().cloned().collect::<BTreeSet<String>>() == known
            && standing.ready().iter().all(is_ready)
            && standing.hot.iter().all(|id| !records[id]["life"]["up"].is_null())
            && standing.stopped.iter().all(|id| records[id]["life"] == "stopped")
    }

    /// Starts a job of a pool that runs until its gate is opened; returns it and its machine.
    pub(crate) async fn busy(&self, pool: &str, gate: &str) -> (u64, String) {
        let before = self.standing(pool).await.in_use;
        let job = self.job(&format!("bullpen/pool={pool}"), &self.gated(gate));
        self.started(job).await;
        let machine = until("machine in use", async || {
            let in_use = self.standing(pool).await.in_use;
            in_use.difference(&before).next().cloned()
        });
        (job, machine.await)
    }
}

impl Served {
    /// Every line of its metrics with this prefix, without the prefix.
    pub(crate) async fn metrics(&self, begin: &str) -> Vec<String> {
        let answer = self.ask("/metrics").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let lines = answer.body.lines().filter_map(|line| line.strip_prefix(begin));
        lines.map(str::to_owned).collect()
    }

    /// Waits until a series of its metrics has this value.
    pub(crate) async fn shows(&self, series: &str, value: u64) {
        let wanted = format!(" {value}");
        let what = format!("{series}{wanted}");
        until(&what, async || self.metrics(series).await.contains(&wanted).then_some(())).await;
    }
}
