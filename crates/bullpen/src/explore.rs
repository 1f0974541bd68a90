//! `bullpen sim explore`: every state of the ownership protocol that can be reached within bounds.
//!
//! Not here: the world and its actors (`bullpen_sim::explore`).

use std::time::Duration;

use bullpen_core::instance::Tier;
use bullpen_sim::explore::{Config, Explored, Rule, explore};

use crate::exit::Exit;
use crate::render;
use crate::sim::now;

/// What to explore, and how far.
#[derive(Debug, clap::Args)]
pub(crate) struct ExploreArgs {
    /// How many steps from the beginning [default: until nothing is left]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// How many answers may be lost, or not given
    #[arg(long, value_name = "N", default_value_t = 0)]
    faults: u8,
    /// How many claim workers there are
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    claimers: u8,
    /// Both claim workers work for one owner
    #[arg(long)]
    one_owner: bool,
    /// How many claims succeed at most
    #[arg(long, value_name = "N", default_value_t = 2)]
    claims: u8,
    /// How often time passes; every deadline is one such tick away
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=50))]
    ticks: u8,
    /// How often the agent may die and start again
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u8,
    /// How many jobs GitHub has
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: u8,
    /// The releaser sees its release through, beside the reaper
    #[arg(long)]
    two_finish: bool,
    /// How the machine is idle in the beginning
    #[arg(long, value_name = "TIER", default_value = "hot", value_parser = parse_tier)]
    tier: Tier,
    /// How many states at most; the memory goes to those of the present depth
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    states: u32,
    /// Switch this rule off, to see what it prevents
    #[arg(long, value_name = "RULE", value_parser = parse_rule)]
    without: Option<Rule>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn parse_tier(text: &str) -> Result<Tier, String> {
    match text {
        "hot" => Ok(Tier::Hot),
        "released" => Ok(Tier::Released),
        "stopped" => Ok(Tier::Stopped),
        _ => Err(String::from("the tiers are hot, released and stopped")),
    }
}

fn parse_rule(text: &str) -> Result<Rule, String> {
    let can_be_off = || Rule::ALL.into_iter().filter(|rule| rule.can_be_off());
    can_be_off().find(|rule| rule.as_str() == text).ok_or_else(|| {
        let names: Vec<_> = can_be_off().map(Rule::as_str).collect();
        format!("this build can switch off: {}", names.join(", "))
    })
}

/// Explores; fails if a property is broken.
pub(crate) fn run(args: &ExploreArgs) -> Exit {
    let began = now();
    let mut spoken = Duration::ZERO;
    let explored = explore(&config(args), &mut |explored| {
        /// How often a long exploration says how far it is.
        const PROGRESS: Duration = Duration::from_secs(5);
        if began.elapsed() >= spoken + PROGRESS {
            spoken = began.elapsed();
            let Explored { states, depth, frontier, .. } = explored;
            render::talk(&format!("depth {depth}: {states} states, {frontier} at this depth"));
        }
    });
    let took = began.elapsed();
    let text = if args.json { json(&explored, took).to_string() } else { text(&explored, took) };
    if args.json {
        render::json(&text);
    } else {
        render::page(&text);
    }
    if explored.found.is_none() { Exit::Done } else { Exit::Failed }
}

fn config(args: &ExploreArgs) -> Config {
    Config {
        claimers: args.claimers,
        one_owner: args.one_owner,
        two_finish: args.two_finish,
        tier: args.tier,
        faults: args.faults,
        restarts: args.restarts,
        jobs: args.jobs,
        claims: args.claims,
        ticks: args.ticks,
        depth: args.depth,
        states_max: usize::try_from(args.states).unwrap_or(usize::MAX),
        off: args.without,
    }
}

fn text(explored: &Explored, took: Duration) -> String {
    let Explored { states, steps, depth, bytes, complete, found, .. } = explored;
    let found = found.as_ref().map_or_else(String::new, |found| format!("{found}\n"));
    let extent = if *complete { "everything there is" } else { "not everything there is" };
    format!(
        "{found}{states} states, {steps} steps, depth {depth}, {extent}, {} MiB for what was visited, \
         {:.1} s",
        bytes >> 20,
        took.as_secs_f64()
    )
}

fn json(explored: &Explored, took: Duration) -> serde_json::Value {
    let Explored { states, steps, depth, frontier, bytes, complete, found } = explored;
    serde_json::json!({
        "states": states,
        "steps": steps,
        "depth": depth,
        "frontier": frontier,
        "visited_bytes": bytes,
        "complete": complete,
        "seconds": took.as_secs_f64(),
        "counterexample": found.as_ref().map(|found| serde_json::json!({
            "broken": found.property.broken(),
            "steps": found.steps,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_build_can_switch_off_is_accepted() {
        assert_eq!(parse_rule("drain-then-stop"), Ok(Rule::DrainThenStop));
        assert!(parse_rule("exposure-remembered").unwrap_err().contains("drain-then-stop"));
        assert!(parse_tier("cold").unwrap_err().contains("stopped"));
    }
}
