//! `bullpen sim explore`: visits every reachable state of the ownership protocol within bounds.
//!
//! Not here: the world and its actors (`bullpen_sim::explore`).

use std::time::Duration;

use bullpen_core::instance::Tier;
use bullpen_sim::explore::{Config, Explored, Rule, explore};

use crate::exit::Exit;
use crate::render;
use crate::sim::now;

/// The world to explore, and the bounds.
#[derive(Debug, clap::Args)]
pub(crate) struct ExploreArgs {
    /// The most steps from the beginning [default: until every state is visited]
    #[arg(long, value_name = "N")]
    depth: Option<u32>,
    /// The number of answers that may be lost or refused
    #[arg(long, value_name = "N", default_value_t = 0)]
    faults: u8,
    /// The number of claim workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=2))]
    claimers: u8,
    /// Both claim workers work for one owner
    #[arg(long)]
    one_owner: bool,
    /// The most claims that succeed
    #[arg(long, value_name = "N", default_value_t = 2)]
    claims: u8,
    /// The number of ticks of the clock; every deadline is one tick away
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=50))]
    ticks: u8,
    /// The number of times that the agent may die and start again
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u8,
    /// The number of jobs at GitHub
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: u8,
    /// The releaser finishes its release itself, beside the reaper
    #[arg(long)]
    two_finish: bool,
    /// The tier of the idle machine in the beginning
    #[arg(long, value_name = "TIER", default_value = "hot", value_parser = parse_tier)]
    tier: Tier,
    /// The most states; the states of the present depth take most of the memory
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    states: u32,
    /// Switch this rule off, to find the violation that it prevents
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

/// Runs `bullpen sim explore`; fails if a property is broken.
pub(crate) fn run(args: &ExploreArgs) -> Exit {
    let began = now();
    let mut reported = Duration::ZERO;
    let explored = explore(&config(args), &mut |explored| {
        /// The time between two lines of progress.
        const PROGRESS: Duration = Duration::from_secs(5);
        if began.elapsed() >= reported + PROGRESS {
            reported = began.elapsed();
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
    let extent = if *complete { "complete" } else { "not complete" };
    format!(
        "{found}{states} states, {steps} steps, depth {depth}, {extent}, {} MiB for visited states, \
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
    fn only_rules_that_this_build_can_switch_off_are_accepted() {
        assert_eq!(parse_rule("drain-then-stop"), Ok(Rule::DrainThenStop));
        assert!(parse_rule("exposure-remembered").unwrap_err().contains("drain-then-stop"));
        assert!(parse_tier("cold").unwrap_err().contains("stopped"));
    }
}
