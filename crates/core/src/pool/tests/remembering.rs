//! Tests of a pool's journal between plans, and of its blueprint.

use super::*;
use crate::config::runs_on::{self, Config};
use crate::ids::{Generation, ImageName, PoolName};
use crate::instance::EndReason;
use crate::pool::journal::launch_id;

const FILE: &str = "
images:
  own: {ami: ami-0123456789abcdef0}
runners:
  large: {cpu: 2, ram: 4, image: own, family: [c7a, m7a], preinstall: echo once}
pools:
  ci:
    runner: large
    schedule: [{name: always, hot: 2, stopped: 1}]
  theirs:
    runner: large
    env: staging
    schedule: [{name: always, hot: 2, stopped: 1}]
x-bullpen:
  pools:
    ci: {max: 7, spot: true}
";

fn config(text: &str) -> Config {
    runs_on::read(text.as_bytes()).into_parts().0.expect("it is good")
}

fn blueprint(text: &str, base: &StackBase) -> Blueprint {
    let all = Blueprints::of("production", &config(text), base);
    all.pools.get(&PoolName::new("ci")).expect("it is there").clone()
}

#[test]
fn a_stack_has_the_pools_of_its_own_environment() {
    let (config, base) = (config(FILE), StackBase::default());
    let names =
        |env| -> Vec<PoolName> { Blueprints::of(env, &config, &base).pools.into_keys().collect() };
    assert_eq!(names("production"), [PoolName::new("ci")]);
    assert_eq!(names("staging"), [PoolName::new("theirs")]);
    assert!(names("another").is_empty());
}

#[test]
fn a_broken_pool_is_not_taken_for_a_removed_one() {
    let broken = FILE.replacen("runner: large", "runner: lrage", 1);
    let all = Blueprints::of("production", &config(&broken), &StackBase::default());
    assert!(all.pools.is_empty());
    assert_eq!(all.unbuildable.into_keys().collect::<Vec<_>>(), [PoolName::new("ci")]);
}

#[test]
fn what_shapes_a_machine_changes_its_hash_and_nothing_else_does() {
    let base = StackBase::default();
    let hash = |text: &str| blueprint(text, &base).spec_hash;
    let before = hash(FILE);
    for (from, to) in [
        ("cpu: 2", "cpu: 4"),
        ("ram: 4", "ram: 8"),
        ("c7a, m7a", "c7a"),
        ("ami-0123456789abcdef0", "ami-0123456789abcdef1"),
        ("echo once", "echo twice"),
        ("runner: large\n    schedule", "runner: large\n    version: 2\n    schedule"),
    ] {
        assert_ne!(hash(&FILE.replace(from, to)), before, "{to}");
    }
    for (from, to) in [
        ("hot: 2", "hot: 3"),
        ("name: always", "name: ever"),
        ("max: 7", "max: 8"),
        ("spot: true", "spot: false"),
        ("c7a, m7a", "m7a, c7a"),
        ("runner: large\n    schedule", "runner: large\n    timezone: Asia/Tokyo\n    schedule"),
    ] {
        assert_eq!(hash(&FILE.replace(from, to)), before, "{to}");
    }
    let newer = StackBase { runner_version: "2.400.0".to_owned(), ..StackBase::default() };
    assert_ne!(blueprint(FILE, &newer).spec_hash, before);
    let script = StackBase { pre_runner: Some("true".to_owned()), ..StackBase::default() };
    assert_ne!(blueprint(FILE, &script).spec_hash, before);
    let image = (ImageName::new("own"), "ami-0123456789abcdef1".to_owned());
    let mapped = StackBase { images: [image].into(), ..StackBase::default() };
    assert_ne!(blueprint(FILE, &mapped).spec_hash, before);
}

#[test]
fn a_pool_stands_under_its_own_ceiling_and_those_that_concern_it() {
    let ceilings = [
        Ceiling { scope: Scope::Stack, max: 50 },
        Ceiling { scope: Scope::Class("large".into()), max: 20 },
        Ceiling { scope: Scope::Class("other".into()), max: 1 },
        Ceiling { scope: Scope::Pool("theirs".into()), max: 1 },
    ];
    let own = blueprint(FILE, &StackBase::default()).ceilings(&ceilings);
    assert_eq!(own.iter().map(|ceiling| ceiling.max).collect::<Vec<_>>(), [50, 20, 7]);
}

#[test]
fn an_operators_order_holds_under_any_configuration() {
    let ordered = |order| Journal { order, ..Journal::default() };
    assert_eq!(ordered(None).mode(true), PoolMode::Kept);
    assert_eq!(ordered(None).mode(false), PoolMode::Removed);
    for is_configured in [true, false] {
        assert_eq!(ordered(Some(OperatorOrder::Pause)).mode(is_configured), PoolMode::Paused);
        assert_eq!(ordered(Some(OperatorOrder::Drain)).mode(is_configured), PoolMode::Draining);
    }
}

fn failing(id: &str) -> PoolMachine {
    PoolMachine { warm_up: WarmUp::Failed, ..warming(id) }
}

/// The journal after one more plan for these machines.
fn looked(journal: Journal, instances: Vec<PoolMachine>, seconds: u64) -> Journal {
    let seen = ObservedPool {
        instances,
        failures: journal.failures.clone(),
        booted: journal.booted(&SpecHash::new(NEW)),
        ..ObservedPool::default()
    };
    let (desired, now) = (desired(2, 0), at(seconds));
    let plan = plan(&seen, &desired, now);
    journal.after(&seen, &desired, &plan, now)
}

#[test]
fn a_boot_that_failed_is_remembered_once_and_until_one_succeeds() {
    let journal = looked(Journal::default(), vec![failing("a"), failing("b")], 10);
    assert_eq!(journal.failures.len(), 2);
    let ends = |id| {
        let why = EndReason::FailedWarmUp;
        standby(id, State::Terminating { why, since: at(12) })
    };
    let journal = looked(journal, vec![ends("a"), ends("b"), ends("c")], 20);
    let at_: Vec<_> = journal.failures.iter().map(|failure| failure.at).collect();
    assert_eq!(at_, [at(10), at(10), at(12)], "known failures stay as they were");
    assert!(journal.notes.iter().any(|note| note.code() == "quarantined"));
    let journal = looked(journal, vec![warm("d")], 30);
    assert_eq!((journal.failures.len(), journal.booted(&SpecHash::new(NEW))), (0, Some(at(30))));
    assert_eq!(journal.booted(&SpecHash::new(OLD)), None);
    let journal = looked(journal, vec![built(OLD, failing("e"))], 40);
    assert!(journal.failures.is_empty(), "a failure of another specification does not count");
}

/// A machine whose warm-up failed ends itself, and another process may see first that it is gone.
#[test]
fn a_boot_that_failed_is_remembered_for_every_way_to_end() {
    let gone = |warm_up| {
        let why = EndReason::MachineGone;
        let mut gone = standby("i", State::Terminating { why, since: at(12) });
        // Born at generation one, and ended before it was ready.
        (gone.record.generation, gone.record.uses) = (Generation(2), 0);
        PoolMachine { warm_up, ..gone }
    };
    let remembered = |instance| looked(Journal::default(), vec![instance], 20).failures.len();
    assert_eq!(remembered(gone(WarmUp::Failed)), 1);
    assert_eq!(remembered(gone(WarmUp::Underway)), 0, "the cause is unknown");
    assert_eq!(remembered(gone(WarmUp::Complete)), 0);
    for (generation, uses) in [(3, 0), (2, 1)] {
        let mut served = gone(WarmUp::Failed);
        (served.record.generation, served.record.uses) = (Generation(generation), uses);
        assert_eq!(remembered(served), 0, "it was warm, and its job may have reported that");
    }
    let taken = PoolMachine { interrupted: true, ..gone(WarmUp::Failed) };
    assert_eq!(remembered(taken), 0);
}

#[test]
fn launches_are_numbered_upwards_without_a_memory_of_the_last() {
    let (journal, second) = (Journal::default(), Duration::from_secs(1));
    let number = journal.next_launch(at(10));
    assert_eq!(launch_id(&pool(), number).as_str(), format!("pool.ci.{number}"));
    let journal = journal.with_launch(number, launch("one", Usage::OnDemand, 3));
    assert_eq!(journal.next_launch(at(10)), number + 1);
    assert_eq!(
        journal.next_launch(at(10).before(60 * second)),
        number + 1,
        "also if the clock went back"
    );
    assert!(Journal::default().next_launch(at(10).after(2 * second)) > number + 1);
}

#[test]
fn a_journal_is_bounded_and_stays_readable() {
    let action = |n| ActionTaken {
        at: at(n),
        act: "stop".to_owned(),
        why: "warmed-up".to_owned(),
        planned: 1,
        done: 1,
        said: None,
    };
    let many: Vec<_> = (0..100).map(|n| failing(&format!("i-{n}"))).collect();
    let journal = looked(Journal::default(), many, 10).with_deeds((0..100).map(action));
    assert_eq!((journal.failures.len(), journal.deeds.len()), (64, 12));
    assert_eq!(journal.deeds.last(), Some(&action(99)));
    let journal = journal.with_launch(7, launch("pool.ci.7", Usage::OnDemand, 3));
    let text = serde_json::to_string(&journal).unwrap();
    assert_eq!(serde_json::from_str::<Journal>(&text).unwrap(), journal);
    assert_eq!(serde_json::from_str::<Journal>("{}").unwrap(), Journal::default());
    assert!(journal.with_open(|_| false).open.is_empty());
}
