//! Tests of routes, by example.
//!
//! Not here: how labels are read (`labels`).

use super::*;
use crate::class::RunnerClass;
use crate::labels::policy::Rules;

/// The test's stack: two pools, the default classes and a policy, unless a test changes them.
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
            ..Policy::default()
        },
        config_loaded: true,
    }
}

/// The route of these labels, in one line.
fn goes(stack: &Stack, labels: &[&str]) -> String {
    let routing = Routing {
        scope: const { &ServiceScope::EVERYTHING },
        env: stack.env,
        region: "eu-west-1",
        pools: &stack.pools,
        broken: &stack.broken,
        classes: &stack.classes,
        default_pool: stack.default_pool.as_ref(),
        policy: &stack.policy,
        config_loaded: stack.config_loaded,
    };
    match route(labels, &Repository::new("acme/app"), &RunAttempt::new("1.1"), &routing) {
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
            (&["runs-on=1", "runs-on/pool=small/env=production"], "pool small"),
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
fn another_stacks_job_is_not_ours_with_any_other_labels() {
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
            (
                &["runs-on=1/runner=large", "dependabot"],
                "label \"dependabot\" may not be given to a runner for this repository; leave it out of `runs-on`",
            ),
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
            // The operator configured this runner, so the policy does not limit it.
            (&["runs-on/runner=16xlarge"], "launch 16xlarge"),
            // Limited to 16 vCPUs no instance would match, and the author would never learn why.
            (
                &["runs-on/family=c7a.48xlarge"],
                "family: c7a.48xlarge has 192 vCPUs, more than acme/app may ask for; the most is 16",
            ),
            (&["runs-on/family=c7a.4xlarge"], "launch 1-16 anonymous"),
            (
                &["runs-on/family=c7g.metal"],
                "family: c7g.metal is a metal host, which acme/app may not ask for; ask for another size",
            ),
            (&["runs-on/runner=lrage"], "there is no runner \"lrage\"; did you mean \"large\"?"),
        ],
    );
}

const NOT_LISTED: &str = "label \"prod-deploy\" may not be given to a runner for this repository; leave it out of `runs-on`";

/// Labels with which a pull request from a fork would try to get a runner that receives other jobs.
#[test]
fn a_label_of_other_jobs_refuses_the_whole_job() {
    let evil = "the key ami may not be used by acme/app; name an image instead, as image=NAME";
    let alone = "label \"ami=ami-0123456789abcdef0\" stands alone; write it into one label, \
                 as in runs-on=${{ github.run_id }}/ami=ami-0123456789abcdef0";
    let other = |label| {
        format!(
            "label \"{label}\" has the id of another run; \
             write runs-on=${{{{ github.run_id }}}}/… or runs-on/…"
        )
    };
    check(
        &stack(),
        &[
            (
                &["runs-on/runner=large", "ami=ami-0123456789abcdef0", "prod-deploy"],
                &format!("{alone}; {NOT_LISTED}; {evil}"),
            ),
            (&["runs-on=1/pool=small", "prod-deploy"], NOT_LISTED),
            (&["dependabot", "prod-deploy"], NOT_LISTED),
            (&["runs-on=2/runner=large"], &other("runs-on=2/runner=large")),
            (&["runs-on=12/runner=large"], &other("runs-on=12/runner=large")),
            (&["runs-on=1/runner=large", "bullpen=2"], &other("bullpen=2")),
            (&["runs-on=1-docker/runner=large"], "launch large"),
        ],
    );
}

#[test]
fn plain_labels_are_served_where_the_operator_lists_them() {
    let list = |labels: &[&str], serves| PlainLabels {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        serves,
        repositories: Some([Repository::new("acme/app")].into()),
        env: "production".to_owned(),
    };
    let plain = vec![
        list(&["prod-deploy", "cpu=*"], None),
        list(&["self-hosted", "linux", "x64"], Some(ServedBy::Pool(PoolName::new("small")))),
        list(&["self-hosted", "big"], Some(ServedBy::Runner("xlarge".into()))),
    ];
    let listed = Stack { policy: Policy { plain, ..stack().policy }, ..stack() };
    let cases: &[(&[&str], &str)] = &[
        (&["self-hosted", "Linux", "X64"], "pool small"),
        (&["linux"], "pool small"),
        (&["self-hosted", "big"], "launch xlarge"),
        (&["self-hosted", "big", "linux"], "not ours: NoHead"),
        (&["prod-deploy"], "not ours: NoHead"),
        (&["runs-on=1/pool=small", "prod-deploy", "cpu=4"], "pool small"),
        (&["self-hosted", "warm-1.1.build"], "not ours: NoHead"),
    ];
    check(&listed, cases);
    let mut elsewhere = listed;
    for plain in &mut elsewhere.policy.plain {
        plain.repositories = Some([Repository::new("acme/other")].into());
    }
    check(
        &elsewhere,
        &[(&["linux"], "not ours: NoHead"), (&["runs-on", "prod-deploy"], NOT_LISTED)],
    );
    for plain in &mut elsewhere.policy.plain {
        (plain.repositories, plain.env) = (None, "dev".to_owned());
    }
    check(
        &elsewhere,
        &[(&["linux"], "not ours: NoHead"), (&["runs-on", "prod-deploy"], NOT_LISTED)],
    );
}
