//! Tests of the default policy, and of families.
//!
//! Not here: rules that the operator sets (`labels::tests`).

use super::*;
use crate::labels::parse;

fn refused(policy: &Policy, label: &str) -> Vec<String> {
    let spec = parse(&[label]).spec;
    let refusals = policy.refusals(&Repository::new("acme/app"), &spec, spec.cpu);
    refusals.iter().map(ToString::to_string).collect()
}

#[test]
fn what_costs_trust_or_much_money_is_refused_by_default() {
    let policy = Policy::default();
    for allowed in [
        "runs-on/cpu=64/ram=256/family=c7a+m7*+r7i.large+t3/image=ubuntu24-full-x64",
        "runs-on/spot=false/volume=500gb:1000mibps:16000iops/retry=false/extras=s3-cache",
        "runs-on/pool=ci/ami=ami-0123456789abcdef0",
        "runs-on/ssh=false/debug=false/nested-virt=false/private=true",
        "runs-on/runner=large/env=x/region=y/tag=z",
    ] {
        assert_eq!(refused(&policy, allowed), [""; 0], "{allowed}");
    }
    for (label, key) in [
        ("runs-on/ami=ami-0123456789abcdef0", "ami"),
        ("runs-on/ssh=true", "ssh"),
        ("runs-on/debug=true", "debug"),
        ("runs-on/sticky=40gb", "sticky"),
        ("runs-on/nested-virt=true", "nested-virt"),
        ("runs-on/cpu=65", "cpu"),
        ("runs-on/ram=257", "ram"),
        ("runs-on/volume=501gb", "volume"),
        ("runs-on/volume=80gb:1001mibps", "volume"),
        ("runs-on/volume=80gb:16001iops", "volume"),
        ("runs-on/family=p5.48xlarge", "family"),
        ("runs-on/family=c7a+g6", "family"),
    ] {
        let refusals = refused(&policy, label);
        assert!(matches!(refusals.as_slice(), [one] if one.contains(key)), "{label}: {refusals:?}");
    }
}

#[test]
fn a_metal_host_is_opened_by_its_name_or_by_nested_virt() {
    let metal = "runs-on/family=c7a.large+c7g.metal";
    for label in [
        metal,
        "runs-on/family=a1.metal",
        "runs-on/family=m7i.metal-24xl",
        "runs-on/family=c*.metal",
    ] {
        let refusals = refused(&Policy::default(), label);
        assert!(
            refusals.iter().any(|why| why.contains("is a metal host")),
            "{label}: {refusals:?}"
        );
    }
    let of = |rules: Rules| Policy { all: rules, ..Policy::default() };
    let families = |names: &[&str]| {
        let families = names.iter().map(|name| Family::new(name)).collect();
        of(Rules { families: Some(families), ..Rules::default() })
    };
    for (open, is_open) in [
        (families(&["c"]), false),
        (families(&["*"]), false),
        (families(&["c", "m7i.metal"]), false),
        (families(&["c", "c7g.metal"]), true),
        (of(Rules { allow: Some([LabelKey::Family].into()), ..Rules::default() }), false),
        (
            of(Rules {
                allow: Some([LabelKey::Family, LabelKey::NestedVirt].into()),
                ..Rules::default()
            }),
            true,
        ),
    ] {
        assert_eq!(refused(&open, metal).is_empty(), is_open, "{open:?}");
    }
}

#[test]
fn a_type_larger_than_the_maximum_is_refused() {
    let refusals = |label| refused(&Policy::default(), label);
    for label in ["runs-on/family=c7a.16xlarge", "runs-on/family=c7a", "runs-on/family=t3.nano"] {
        assert_eq!(refusals(label), [""; 0], "{label}");
    }
    for label in ["runs-on/family=m7a.large+c7a.48xlarge", "runs-on/family=c7a.48xlarge/cpu=2"] {
        assert_eq!(
            refusals(label),
            ["family: c7a.48xlarge has 192 vCPUs, more than acme/app may ask for; the most is 64"]
        );
    }
    let rules = Rules { cpu_milli_max: Some(192_000), ..Rules::default() };
    let more = Policy { all: rules, ..Policy::default() };
    assert_eq!(refused(&more, "runs-on/family=c7a.48xlarge"), [""; 0]);
}

#[test]
fn a_size_says_how_many_vcpus_a_type_has() {
    for (pattern, count) in [
        ("c7a.large", Some(2)),
        ("c7a.xlarge", Some(4)),
        ("m*.48xlarge", Some(192)),
        ("c7i.metal-48xl", Some(192)),
        ("c7i.99999999999xlarge", None),
        ("c7g.metal", None),
        ("t3.nano", None),
        ("c7a*", None),
        ("c7a.*xlarge", None),
    ] {
        assert_eq!(vcpus(&TypePattern::new(pattern)), count, "{pattern}");
    }
}

#[test]
fn a_family_is_covered_by_how_its_name_begins() {
    let covers =
        |family: &str, pattern: &str| Family::new(family).covers(&TypePattern::new(pattern));
    for (family, pattern) in [
        ("t", "t3*"),
        ("m", "m*"),
        ("m", "m7i.*"),
        ("c7", "c7gn*"),
        ("c7a", "c7a.large"),
        ("*", "*.large"),
    ] {
        assert!(covers(family, pattern), "{family} {pattern}");
    }
    for (family, pattern) in [
        ("t", "trn1*"),
        ("m", "mac2.metal"),
        ("c7", "c6a*"),
        ("c", "*"),
        ("c", "*.large"),
        ("c7a", "c*"),
    ] {
        assert!(!covers(family, pattern), "{family} {pattern}");
    }
}

#[test]
fn one_repository_may_be_allowed_more() {
    let allow = Some(KEYS_DEFAULT.iter().copied().chain([LabelKey::Ami]).collect());
    let families = Some(vec![Family::new("c"), Family::new("g6")]);
    let own = Rules { allow, families, ..Rules::default() };
    let label = "runs-on/ami=ami-0123456789abcdef0/family=g6.xlarge";
    let named = |name: &str| Policy {
        repositories: [(Repository::new(name), own.clone())].into(),
        ..Policy::default()
    };
    assert_eq!(refused(&named("acme/app"), label), [""; 0]);
    assert_eq!(refused(&named("acme/other"), label).len(), 2);
}

#[test]
fn a_repositorys_group_comes_before_its_pools_and_classes() {
    let group = RunnerGroup::new;
    let groups = Groups {
        all: Some(group("all")),
        repositories: [(Repository::new("acme/app"), group("own"))].into(),
    };
    let (pool, class) = (group("pool"), group("class"));
    let of = |name: &str, pool, class| groups.of(&Repository::new(name), pool, class).cloned();
    assert_eq!(of("Acme/App", Some(&pool), Some(&class)), Some(group("own")));
    assert_eq!(of("acme/other", Some(&pool), Some(&class)), Some(group("pool")));
    assert_eq!(of("acme/other", None, Some(&class)), Some(group("class")));
    assert_eq!(of("acme/other", None, None), Some(group("all")));
}
