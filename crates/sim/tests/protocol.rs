//! Explores the ownership protocol: it is clean with all rules, and without one of them the
//! exploration finds that rule's counterexample.
//!
//! Rules in production code can be switched off only in a build with `--cfg sabotage`.
//!
//! Not here: the actors, rules and search (`bullpen_sim::explore`).

use bullpen_core::instance::Tier;
use bullpen_sim::explore::{Config, Counterexample, Property, Rule, explore};

/// A lone worker with one claim: small enough for an unoptimised test.
fn lone(tier: Tier) -> Config {
    Config { claimers: 1, claims: 1, ..Config::small(tier) }
}

fn is_clean(config: &Config, states_min: usize) {
    let explored = explore(config, &mut |_| {});
    if let Some(found) = explored.found {
        panic!("{config:?}\n{found}");
    }
    assert!(explored.states >= states_min, "{} states prove nothing: {config:?}", explored.states);
}

#[test]
fn a_lone_worker_and_the_processes_that_take_its_machine_back_are_clean() {
    for tier in [Tier::Hot, Tier::Stopped] {
        is_clean(&Config { jobs: 0, ticks: 0, ..lone(tier) }, 300);
        is_clean(&Config { depth: Some(15), ..lone(tier) }, 5_000);
    }
}

#[test]
fn two_workers_are_clean_as_far_as_a_test_goes() {
    for (tier, one_owner) in [(Tier::Hot, false), (Tier::Stopped, false), (Tier::Hot, true)] {
        let config = Config { one_owner, faults: 1, depth: Some(11), ..Config::small(tier) };
        is_clean(&config, 5_000);
    }
}

#[test]
fn two_processes_that_finish_a_release_and_a_restarted_agent_are_clean_as_far_as_a_test_goes() {
    let config = Config { two_finish: true, restarts: 1, depth: Some(11), ..lone(Tier::Hot) };
    is_clean(&config, 5_000);
}

/// The shortest counterexample without this rule; `None` if this build cannot switch it off.
fn without(rule: Rule, config: &Config) -> Option<Counterexample> {
    /// A counterexample that needs more states is not worth reading.
    const STATES_MAX: usize = 3_000_000;
    if !rule.can_be_off() {
        return None;
    }
    let config = Config { off: Some(rule), states_max: STATES_MAX, ..config.clone() };
    let explored = explore(&config, &mut |_| {});
    let found = explored.found.unwrap_or_else(|| {
        panic!("{rule} is off, and {} states violate no property", explored.states)
    });
    show(rule, explored.states, &found);
    Some(found)
}

#[expect(clippy::print_stdout, reason = "a developer reads the counterexamples")]
fn show(rule: Rule, states: usize, found: &Counterexample) {
    println!("without {rule}: {} steps, {states} states\n{found}\n", found.steps.len());
}

fn breaks(rule: Rule, config: &Config, property: Property, steps: usize) {
    if let Some(found) = without(rule, config) {
        assert_eq!(found.property, property, "{rule}: {found}");
        assert!(found.steps.len() <= steps, "{rule}: {} steps: {found}", found.steps.len());
    }
}

#[test]
fn c01_a_withdrawal_that_erases_the_assignment_leaves_a_listener_on_an_idle_machine() {
    let config = Config { jobs: 0, ticks: 0, ..lone(Tier::Hot) };
    breaks(Rule::ExposureRemembered, &config, Property::NobodyOnIdle, 12);
}

#[test]
fn c02_exposure_judged_before_the_withdrawal_is_stored_misses_an_assignment_in_flight() {
    let config = Config { jobs: 0, ticks: 0, ..lone(Tier::Hot) };
    breaks(Rule::JudgedAfterWithdrawal, &config, Property::NobodyOnIdle, 11);
}

#[test]
fn c03_a_stopped_machine_that_returns_without_a_withdrawal_listens_when_its_start_lands() {
    let config = Config { jobs: 0, ticks: 0, ..lone(Tier::Stopped) };
    breaks(Rule::WithdrawnBeforeIdle, &config, Property::NobodyOnIdle, 13);
}

#[test]
fn c04_a_machine_recorded_as_stopped_runs_and_no_process_stops_it() {
    let config = Config { jobs: 0, ticks: 0, ..lone(Tier::Stopped) };
    breaks(Rule::FoundRunningIsStopped, &config, Property::Repaired, 10);
}

#[test]
fn c05_a_repeated_stop_call_finds_an_owner() {
    let config = Config { claims: 2, jobs: 0, ..lone(Tier::Stopped) };
    breaks(Rule::StopsAreFenced, &config, Property::StopFindsNobody, 27);
}

#[test]
fn c06_a_reaper_that_stalled_takes_the_machine_of_an_owner_that_renewed() {
    breaks(Rule::ReapedAsRead, &lone(Tier::Hot), Property::LiveOwnerKeeps, 6);
}

#[test]
fn c07_a_release_that_stalled_takes_a_later_claim_of_the_same_owner() {
    let config = Config { claims: 2, jobs: 0, ..lone(Tier::Hot) };
    breaks(Rule::OwnerAndGeneration, &config, Property::FencedIsHarmless, 12);
}

#[test]
fn c08_two_workers_of_one_owner_both_believe_that_they_won() {
    let config = Config { one_owner: true, faults: 1, ..Config::small(Tier::Hot) };
    breaks(Rule::SettledByNonce, &config, Property::OneHolder, 3);
}

#[test]
fn c09_an_old_first_read_starts_a_listener_on_an_idle_machine() {
    let config = Config { jobs: 0, ticks: 0, ..lone(Tier::Stopped) };
    breaks(Rule::ReadConsistently, &config, Property::NobodyOnIdle, 14);
}

#[test]
fn c10_a_runner_that_registers_after_it_was_not_found_loses_its_job() {
    let config = Config { ticks: 1, ..lone(Tier::Hot) };
    breaks(Rule::RegisterBy, &config, Property::JobsAreSafe, 17);
}

#[test]
fn c11_stopping_at_once_ends_a_machine_with_a_job() {
    breaks(Rule::DrainThenStop, &lone(Tier::Hot), Property::JobsAreSafe, 18);
}

#[test]
fn c12_a_withdrawal_that_overtook_its_assignment_costs_a_healthy_machine() {
    let config = Config { jobs: 0, ticks: 4, ..lone(Tier::Hot) };
    breaks(Rule::AcknowledgedAlways, &config, Property::HealthyIsKept, 17);
}

#[test]
fn a_deadline_that_counts_before_it_passed_on_every_clock_costs_a_job() {
    let config = Config { ticks: 1, ..lone(Tier::Hot) };
    breaks(Rule::SkewTolerated, &config, Property::JobsAreSafe, 17);
}
