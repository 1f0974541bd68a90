//! Where jobs go, by example.
//!
//! Not here: how labels are read (`labels`).

use std::collections::BTreeMap;

use super::*;
use crate::class::RunnerClass;
use crate::labels::policy::Rules;

/// A stack with two pools, the seven classes and a policy.
struct Stack {
    env: &'static str,
    pools: BTreeSet<PoolName>,
    broken: BTreeSet<PoolName>,
    classes: Catalogue,
    default_pool: Option<PoolName>,
    policy: Policy,
    config_loaded: bool,
}

fn stack() -> Stack {
    Stack {
        env: "production",
        pools: ["small", "dependabot"].into_iter().map(PoolName::new).collect(),
        broken: BTreeSet::new(),
        classes: Catalogue::of_classes(&RunnerClass::defaults()),
        default_pool: None,
        policy: Policy {
            all: Rules { cpu_milli_max: Some(16_000), ..Rules::default() },
            repositories: BTreeMap::new(),
        },
        config_loaded: true,
    }
}

/// Where they go, in one line.
fn goes(stack: &Stack, labels: &[&str]) -> String {
    let routing = Routing {
        env: stack.env,
        region: "eu-west-1",
        pools: &stack.pools,
        broken: &stack.broken,
        classes: &stack.classes,
        default_pool: stack.default_pool.as_ref(),
        policy: &stack.policy,
        config_loaded: stack.config_loaded,
    };
    match route(labels, &Repository::new("acme/app"), &routing) {
        Route::Pool(pool) => format!("pool {pool}"),
        Route::Launch(Launch { class: ClassRef::Named(class), .. }) => {
            format!("launch {}", class.name)
        }
        Route::Launch(Launch { class: ClassRef::Anonymous(class), .. }) => {
            format!("launch {}-{} anonymous", class.vcpu.min, class.vcpu.max)
        }
        Route::UnknownPool { pool, suggestions } => {
            format!("unknown pool {pool}{}", spelling::hint(&suggestions))
        }
        Route::NotOurs(why) => format!("not ours: {why:?}"),
        Route::Refused(why) => why.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Route::Wait => "wait".to_owned(),
    }
}

fn check(stack: &Stack, cases: &[(&[&str], &str)]) {
    for (labels, expected) in cases {
        assert_eq!(goes(stack, labels), *expected, "{labels:?}");
    }
}

#[test]
fn a_job_goes_where_its_labels_say() {
    check(
        &stack(),
        &[
            (&["runs-on=1/pool=small"], "pool small"),
            (&["runs-on=1/pool=small/cpu=9999999"], "pool small"),
            (&["runs-on=1", "pool=small", "env=production"], "pool small"),
            (&["runs-on=1/pool=smal"], "unknown pool smal; did you mean \"small\"?"),
            (&["runs-on=1/pool=cheap-x64"], "unknown pool cheap-x64"),
            (&["runs-on=1/cpu=2/ram=4"], "launch large"),
            (&["runs-on=1/runner=xlarge"], "launch xlarge"),
            (&["runs-on=1/runner=4cpu-linux-x64"], "launch 4-4 anonymous"),
            (&["runs-on=1"], "launch 2-2 anonymous"),
            (&["ubuntu-latest"], "not ours: NoHead"),
            (&["self-hosted", "pool=small"], "not ours: NoHead"),
            (&["warm-1.1.build"], "not ours: NoHead"),
            (&["runs-on=1/pool=small", "warm-1.1.build"], "not ours: NoHead"),
        ],
    );
}

#[test]
fn another_stacks_job_is_not_ours_whatever_else_it_says() {
    check(
        &stack(),
        &[
            (&["runs-on=1/env=dev/pool=small"], "not ours: Env"),
            (&["runs-on=1/env=dev/cpus=4"], "not ours: Env"),
            (&["runs-on=1/env=a b/cpu=4"], "not ours: Env"),
            (&["runs-on=1/region=us-east-1/cpu=4"], "not ours: Region"),
            (&["runs-on=1/region=eu-west-1/runner=large"], "launch large"),
        ],
    );
    let dev = Stack { env: "dev", ..stack() };
    check(
        &dev,
        &[
            (&["runs-on=1/env=dev/pool=small"], "pool small"),
            (&["runs-on=1/pool=small"], "not ours: Env"),
            (&["dependabot"], "not ours: Env"),
        ],
    );
}

#[test]
fn dependabots_jobs_go_to_its_pool_if_there_is_one() {
    let with = stack();
    check(
        &with,
        &[
            (&["dependabot"], "pool dependabot"),
            (&["runs-on=1/cpu=2", "dependabot"], "pool dependabot"),
            (&["runs-on=1/pool=small", "dependabot"], "pool small"),
        ],
    );
    let without = Stack { pools: [PoolName::new("small")].into(), ..stack() };
    check(
        &without,
        &[
            (&["dependabot"], "not ours: NoDependabotPool"),
            (&["runs-on=1/runner=large", "dependabot"], "launch large"),
        ],
    );
}

#[test]
fn the_default_pool_takes_jobs_that_name_nothing() {
    let small = Stack { default_pool: Some(PoolName::new("small")), ..stack() };
    check(
        &small,
        &[
            (&["runs-on=1"], "pool small"),
            (&["runs-on=1/tag=x/env=production"], "pool small"),
            (&["runs-on=1/runner=large"], "launch large"),
            (&["runs-on=1/cpu=4/ram=8"], "launch xlarge"),
            (&["self-hosted"], "not ours: NoHead"),
        ],
    );
    let gone = Stack { default_pool: Some(PoolName::new("gone")), ..stack() };
    check(&gone, &[(&["runs-on=1"], "unknown pool gone")]);
}

#[test]
fn until_a_configuration_was_read_jobs_wait() {
    let early = Stack { config_loaded: false, pools: BTreeSet::new(), ..stack() };
    check(
        &early,
        &[
            (&["runs-on=1/pool=small"], "wait"),
            (&["runs-on=1/cpus=4"], "wait"),
            (&["dependabot"], "wait"),
            (&["runs-on=1/env=dev"], "not ours: Env"),
            (&["self-hosted"], "not ours: NoHead"),
        ],
    );
}

#[test]
fn jobs_of_a_broken_pool_wait_and_others_do_not() {
    let [small, dependabot] = ["small", "dependabot"].map(PoolName::new);
    let broken = Stack {
        pools: BTreeSet::new(),
        broken: [small.clone(), dependabot].into(),
        default_pool: Some(small),
        ..stack()
    };
    check(
        &broken,
        &[
            (&["runs-on=1/pool=small"], "wait"),
            (&["runs-on=1"], "wait"),
            (&["dependabot"], "wait"),
            (&["runs-on=1/pool=smal"], "unknown pool smal"),
            (&["runs-on=1/runner=large"], "launch large"),
            (&["runs-on=1/pool=small/env=dev"], "not ours: Env"),
        ],
    );
    let kept = Stack { pools: [PoolName::new("small")].into(), ..broken };
    check(&kept, &[(&["runs-on=1/pool=small"], "pool small"), (&["dependabot"], "wait")]);
}

#[test]
fn what_may_not_be_is_refused_with_its_reason() {
    check(
        &stack(),
        &[
            (
                &["runs-on/cpus=4/ram=x"],
                "label \"runs-on/cpus=4/ram=x\": cpus: there is no such key; did you mean \"cpu\"?; \
                 label \"runs-on/cpus=4/ram=x\": ram: \"x\" is not an amount above 0 such as 4, 0.5 or 4+16",
            ),
            (&["runs-on/cpu=4+32"], "cpu: 32 is more than acme/app may ask for; the most is 16"),
            (
                &["runs-on/runner=64cpu-linux-x64"],
                "cpu: 64 is more than acme/app may ask for; the most is 16",
            ),
            // The operator's own word.
            (&["runs-on/runner=16xlarge"], "launch 16xlarge"),
            // A type with more than the maximum is outside the range, and so is never launched.
            (&["runs-on/family=c7a.48xlarge"], "launch 1-16 anonymous"),
            (&["runs-on/runner=lrage"], "there is no runner \"lrage\"; did you mean \"large\"?"),
        ],
    );
}
