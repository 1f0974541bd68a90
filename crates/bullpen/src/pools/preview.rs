//! `bullpen pools preview`: the targets of pools at an instant, or their changes between two
//! instants.
//!
//! Not here: reading and evaluating schedules (`bullpen_core::schedule`).

mod picture;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bullpen_core::ids::PoolName;
use bullpen_core::schedule::{ChangePoint, SPAN_MAX, Schedule, Target, Zone, changes, target_at};
use bullpen_core::spelling;
use bullpen_core::time::Timestamp;
use serde_json::{Value, json};

use crate::config_file::{self, Unusable};
use crate::exit::Exit;
use crate::render;

/// The pools and the times to show.
#[derive(Debug, clap::Args)]
pub(crate) struct PreviewArgs {
    /// The configuration with the pools
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Only this pool [default: all]
    #[arg(long, value_name = "NAME")]
    pool: Option<String>,
    /// Show the targets at this instant
    #[arg(
        long,
        value_name = "RFC3339",
        required_unless_present_any = ["from", "until"],
        conflicts_with_all = ["from", "until"]
    )]
    at: Option<Timestamp>,
    /// Show every change from this instant on
    #[arg(long, value_name = "RFC3339", requires = "until")]
    from: Option<Timestamp>,
    /// The end of the range: show changes before this instant
    #[arg(long, value_name = "RFC3339", requires = "from")]
    until: Option<Timestamp>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The instant or the range to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    At(Timestamp),
    Between(Timestamp, Timestamp),
}

impl When {
    fn of(args: &PreviewArgs) -> Result<Self, &'static str> {
        match (args.at, args.from, args.until) {
            (Some(at), ..) => Ok(Self::At(at)),
            (None, Some(from), Some(until)) if until <= from => Err("--until is not after --from"),
            (None, Some(from), Some(until)) if until.since(from) > SPAN_MAX => {
                Err("the range is longer than ten years")
            }
            (None, Some(from), Some(until)) => Ok(Self::Between(from, until)),
            _ => Err("give --at, or --from and --until"),
        }
    }
}

/// Runs `bullpen pools preview`.
pub(crate) fn preview(args: &PreviewArgs) -> Exit {
    let when = match When::of(args) {
        Ok(when) => when,
        Err(why) => {
            render::error(why, None);
            return Exit::Usage;
        }
    };
    let pools = load(&args.config, args.pool.as_deref());
    let pools = pools.and_then(|pools| selected(pools, args.pool.as_deref()));
    let pools = match pools {
        Ok(pools) => pools,
        Err(Unusable { what, hint }) => {
            render::error(&what, hint.as_deref());
            return Exit::Failed;
        }
    };
    if args.json {
        render::json(&json_of(&pools, when).to_string());
    } else {
        render::page(text_of(&pools, when).trim_end());
    }
    Exit::Done
}

/// A pool's schedule with its zone.
#[derive(Clone, Debug)]
struct Pool {
    schedule: Schedule,
    zone: Zone,
}

/// The pools of a file. The command reports broken pools, and fails if `wanted` is broken.
fn load(path: &Path, wanted: Option<&str>) -> Result<BTreeMap<PoolName, Pool>, Unusable> {
    let config = config_file::load(path)?;
    let hint = format!("`bullpen lint {}` shows why", path.display());
    for name in &config.broken {
        let what = format!("the pool {name} is broken");
        if wanted == Some(name.as_str()) {
            return Err(Unusable { what, hint: Some(hint) });
        }
        render::talk(&format!("{what} and not shown; {hint}"));
    }
    let pools = config.pools.into_iter();
    with_zones(pools.map(|(name, pool)| (name, pool.schedule)).collect())
}

fn with_zones(
    schedules: BTreeMap<PoolName, Schedule>,
) -> Result<BTreeMap<PoolName, Pool>, Unusable> {
    let pool = |(name, schedule): (PoolName, Schedule)| {
        let zone = Zone::parse(&schedule.zone)
            .map_err(|error| Unusable::new(format!("pool {name}: {error}")))?;
        Ok((name, Pool { schedule, zone }))
    };
    schedules.into_iter().map(pool).collect()
}

fn selected(
    mut pools: BTreeMap<PoolName, Pool>,
    wanted: Option<&str>,
) -> Result<BTreeMap<PoolName, Pool>, Unusable> {
    let Some(wanted) = wanted else { return Ok(pools) };
    let name = PoolName::new(wanted);
    if let Some(pool) = pools.remove(&name) {
        return Ok(BTreeMap::from([(name, pool)]));
    }
    let near = spelling::nearest(wanted, pools.keys().map(PoolName::as_str));
    let what = format!("there is no pool {wanted:?}{}", spelling::hint(&near));
    let names: Vec<&str> = pools.keys().map(PoolName::as_str).collect();
    let hint = (!names.is_empty()).then(|| format!("pools: {}", names.join(", ")));
    Err(Unusable { what, hint })
}

/// The points to show of one pool, in order.
fn points(pool: &Pool, when: When) -> Vec<ChangePoint> {
    match when {
        When::At(at) => vec![ChangePoint { at, target: target_at(&pool.schedule, &pool.zone, at) }],
        When::Between(from, until) => changes(&pool.schedule, &pool.zone, from, until),
    }
}

fn json_of(pools: &BTreeMap<PoolName, Pool>, when: When) -> Value {
    let object = |name: &PoolName, ChangePoint { at, target }: ChangePoint| {
        let Target { entry, hot, stopped } = target;
        json!({ "pool": name, "at": at, "entry": entry, "hot": hot, "stopped": stopped })
    };
    pools
        .iter()
        .flat_map(|(name, pool)| points(pool, when).into_iter().map(move |p| object(name, p)))
        .collect()
}

fn text_of(pools: &BTreeMap<PoolName, Pool>, when: When) -> String {
    let mut parts = Vec::new();
    for (name, pool) in pools {
        let mut lines = vec![format!("{name} ({})", pool.zone.name()), String::new()];
        lines.push(picture::week(&pool.schedule));
        lines.push(String::new());
        if let When::Between(from, _) = when {
            // The changes alone would not show the target before the first change.
            lines.push(line(pool, from, &target_at(&pool.schedule, &pool.zone, from)));
        }
        let rest = points(pool, when)
            .into_iter()
            .filter(|point| !matches!(when, When::Between(from, _) if point.at == from));
        lines.extend(rest.map(|point| line(pool, point.at, &point.target)));
        parts.push(lines.join("\n"));
    }
    if parts.is_empty() { "no pools".to_owned() } else { parts.join("\n\n") }
}

/// The line of one instant, by the pool's wall clock.
fn line(pool: &Pool, at: Timestamp, target: &Target) -> String {
    let wall = pool.zone.wall_clock(at);
    let Target { entry, hot, stopped } = target;
    let entry = entry
        .as_ref()
        .map_or("(nothing matches)".to_owned(), |name| name.escape_debug().to_string());
    let day = wall.day.as_str();
    format!("{day:<9}  {}  hot {hot}  stopped {stopped}  {entry}", pool.zone.written(at))
}

#[cfg(test)]
mod tests;
