//! Benchmarks for parsing a job's labels, routing the job, and evaluating a year of a schedule.
//!
//! Not here: decisions about machines (`decisions`).

use std::collections::BTreeSet;
use std::hint::black_box;

use bullpen_core::class::RunnerClass;
use bullpen_core::ids::{PoolName, Repository, RunAttempt};
use bullpen_core::labels::class::Catalogue;
use bullpen_core::labels::parse;
use bullpen_core::labels::policy::Policy;
use bullpen_core::route::{Routing, route};
use bullpen_core::schedule::{
    Match, Schedule, ScheduleEntry, TimeOfDay, Weekday, Window, Zone, changes, lint, target_at,
};
use bullpen_core::scope::ServiceScope;
use bullpen_core::spec_hash::{MachineSpec, spec_hash};
use bullpen_core::time::Timestamp;
use criterion::{Criterion, criterion_group, criterion_main};

/// The usual packed label, labels as an array, and the longest label that is all mistakes.
fn labels(c: &mut Criterion) {
    let pool = ["runs-on=17284629384/pool=small-x64"];
    let packed = [
        "runs-on=17284629384/cpu=4+16/ram=16/family=c7a+m7a/image=ubuntu24-full-x64/volume=80gb:gp3:125mibps:3000iops/spot=false",
    ];
    let array = ["runs-on=17284629384", "cpu=4", "ram=16", "family=c7a", "self-hosted"];
    let hostile = vec!["runs-on/".to_owned() + &"cpus=9,".repeat(35); 100];
    c.bench_function("label/pool", |b| b.iter(|| parse(black_box(&pool))));
    c.bench_function("label/packed", |b| b.iter(|| parse(black_box(&packed))));
    c.bench_function("label/array", |b| b.iter(|| parse(black_box(&array))));
    c.bench_function("label/hostile", |b| b.iter(|| parse(black_box(&hostile))));
}

fn routes(c: &mut Criterion) {
    let pools: BTreeSet<PoolName> = (0..500).map(|n| PoolName::new(format!("pool-{n}"))).collect();
    let classes = Catalogue::of_classes(&RunnerClass::defaults());
    let policy = Policy::default();
    let routing = Routing {
        scope: const { &ServiceScope::EVERYTHING },
        env: "production",
        region: "eu-west-1",
        pools: &pools,
        broken: &BTreeSet::new(),
        classes: &classes,
        default_pool: None,
        policy: &policy,
        config_loaded: true,
    };
    let repository = Repository::new("acme/app");
    for (name, label) in [("pool", "runs-on=1/pool=pool-250"), ("launch", "runs-on=1/cpu=4/ram=8")]
    {
        let route = || route(black_box(&[label]), &repository, &RunAttempt::new("1.1"), &routing);
        c.bench_function(&format!("route/{name}"), |b| b.iter(route));
    }
}

fn warm_pools() -> Schedule {
    let time = |text| TimeOfDay::parse(text).expect("a time");
    let nights = Window { from: time("22:00"), to: time("06:00") };
    let entry = |name: &str, hot, stopped, when| ScheduleEntry {
        name: name.to_owned(),
        hot,
        stopped,
        when,
    };
    let weekend = [Weekday::Saturday, Weekday::Sunday].into();
    Schedule {
        zone: "Europe/Paris".to_owned(),
        entries: vec![
            entry("default", 1, 2, None),
            entry("nights", 0, 2, Some(Match { days: None, window: Some(nights) })),
            entry("weekends", 0, 1, Some(Match { days: Some(weekend), window: None })),
        ],
    }
}

fn schedules(c: &mut Criterion) {
    let schedule = warm_pools();
    let zone = Zone::parse(&schedule.zone).expect("a zone");
    let from: Timestamp = "2026-01-01T00:00:00Z".parse().expect("an instant");
    let until: Timestamp = "2027-01-01T00:00:00Z".parse().expect("an instant");
    c.bench_function("schedule/target", |b| {
        b.iter(|| target_at(&schedule, &zone, black_box(from)));
    });
    c.bench_function("schedule/year", |b| {
        b.iter(|| changes(&schedule, &zone, black_box(from), until));
    });
    c.bench_function("schedule/lint", |b| b.iter(|| lint(black_box(&schedule))));
    c.bench_function("schedule/zone", |b| b.iter(|| Zone::parse(black_box("Europe/Paris"))));
    c.bench_function("spec-hash", |b| b.iter(|| spec_hash(black_box(&MachineSpec::default()))));
}

criterion_group!(benches, labels, routes, schedules);
criterion_main!(benches);
