//! tmp
use bullpen_core::instance::Tier;
use bullpen_sim::explore::{Config, Rule, explore};

fn show(name: &str, config: &Config) {
    let e = explore(config, &mut |_| {});
    println!("{name}: {} states, depth {}, {} steps, {} MB complete {}", e.states, e.depth, e.steps, e.bytes >> 20, e.complete);
    if let Some(found) = e.found { println!("{:?}\n{found}", found.property); }
}

#[test]
fn tmp() {
    let max = 3_000_000;
    for tier in [Tier::Hot, Tier::Stopped] {
        let small = Config { states_max: max, ..Config::small(tier) };
        show(&format!("{tier:?} one claimer, 1 claim"), &Config { claimers: 1, claims: 1, ..small.clone() });
        show(&format!("{tier:?} one claimer"), &Config { claimers: 1, ..small.clone() });
        show(&format!("{tier:?} two"), &small);
    }
    for rule in Rule::ALL {
        if !rule.can_be_off() { continue; }
        for tier in [Tier::Hot, Tier::Stopped] {
            show(&format!("off {rule} {tier:?}"), &Config { off: Some(rule), states_max: 1_000_000, ..Config::small(tier) });
        }
    }
}
