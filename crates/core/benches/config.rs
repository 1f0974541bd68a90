//! Benchmarks for reading configuration: a file with 500 pools, and the default `bullpen.toml`.
//!
//! Not here: single decisions (`decisions`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;

use bullpen_core::config::{runs_on, stack};
use criterion::{Criterion, criterion_group, criterion_main};

const POOLS: usize = 500;

/// Gives each pool its own runner and the schedule of the example file; half of the runners take
/// their keys from an anchor.
fn file() -> String {
    let mut file = String::from(
        "x-base: &base\n  image: ubuntu24-full-x64\n  volume: 80gb:gp3:125mibps:3000iops\nrunners:\n",
    );
    let written = "writing to a string";
    for number in 0..POOLS {
        let keys = if number % 2 == 0 { "<<: *base" } else { "image: ubuntu24-full-arm64" };
        let runner = format!("    {keys}\n    cpu: 2+4\n    ram: [4, 8]\n    family: [c7g, m7g]\n");
        write!(file, "  runner-{number}:\n{runner}").expect(written);
    }
    file.push_str("pools:\n");
    for number in 0..POOLS {
        write!(
            file,
            "  pool-{number}:\n    env: dev\n    runner: runner-{number}\n    timezone: Europe/Paris\n    \
             schedule:\n      - name: default\n        hot: 1\n        stopped: 2\n      \
             - name: nights\n        match:\n          \
             day: [monday, tuesday, wednesday, thursday, friday, saturday, sunday]\n          \
             time: [\"22:00\", \"06:00\"]\n        hot: 0\n        stopped: 2\n      \
             - name: weekends\n        match:\n          day: [saturday, sunday]\n        \
             hot: 0\n        stopped: 1\n",
        )
        .expect(written);
    }
    file
}

fn config(criterion: &mut Criterion) {
    let file = file();
    let read = runs_on::read(file.as_bytes());
    let config = read.value().expect("the file has no errors");
    assert_eq!((config.pools.len(), config.runners.len()), (POOLS, POOLS));
    criterion.bench_function("runs-on.yml with 500 pools", |bencher| {
        bencher.iter(|| runs_on::read(black_box(file.as_bytes())));
    });
    let misspelt = file.replace("runner:", "runer:").replace("hot:", "hott:");
    criterion.bench_function("the same, misspelt in 2000 places", |bencher| {
        bencher.iter(|| runs_on::read(black_box(misspelt.as_bytes())));
    });
    let environment = BTreeMap::new();
    criterion.bench_function("bullpen.toml with every default", |bencher| {
        bencher.iter(|| stack::read(black_box(stack::DEFAULTS.as_bytes()), &environment));
    });
}

criterion_group!(benches, config);
criterion_main!(benches);
