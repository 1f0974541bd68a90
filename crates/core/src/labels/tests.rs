//! Tests of labels by example: every form, every value, every refusal, as plain text.
//!
//! Not here: random labels (the fuzz tests), or where a job goes (`route`).

use super::class::{Catalogue, ClassRef, resolve};
use super::policy::{Policy, Rules};
use super::*;
use crate::class::{RunnerClass, Scripts};
use crate::config::runs_on;
use crate::ids::Repository;

/// The settings in one line, and a line for each finding.
fn described(labels: &[&str]) -> String {
    let parsed = parse(labels);
    let mut text = if parsed.ours { parsed.spec.packed("ours") } else { "not ours".to_owned() };
    if parsed.spec.dependabot {
        text.push_str(" dependabot");
    }
    if let Some(id) = &parsed.spec.id {
        let _ = write!(text, " id={id}");
    }
    for finding in &parsed.findings {
        let _ = write!(text, "\n{}: {finding}", finding.severity().as_str());
    }
    text
}

fn check(cases: &[(&[&str], &str)]) {
    for (labels, expected) in cases {
        assert_eq!(described(labels), *expected, "{labels:?}");
    }
}

#[test]
fn every_form_is_read() {
    check(&[
        (&["runs-on"], "ours"),
        (&["bullpen"], "ours"),
        (&["runs-on=42"], "ours id=42"),
        (&["bullpen=42-docker"], "ours id=42-docker"),
        (&["runs-on="], "ours"),
        (&["runs-on/runner=2cpu-linux-x64"], "ours/runner=2cpu-linux-x64"),
        (&["runs-on=42/cpu=4/ram=16"], "ours/cpu=4/ram=16 id=42"),
        (&["bullpen=42/pool=small-x64"], "ours/pool=small-x64 id=42"),
        (&["runs-on,cpu=4,ram=16"], "ours/cpu=4/ram=16"),
        (&["runs-on=42,cpu=4/ram=16"], "ours/cpu=4/ram=16 id=42"),
        (&["runs-on=42", "cpu=4", "family=c7a"], "ours/cpu=4/family=c7a* id=42"),
        (&["cpu=4", "runs-on"], "ours/cpu=4"),
        (&["runs-on-cpu=4"], "ours/cpu=4"),
        (
            &["runs-on", "runs-on-cpu=4", "runs-on-image=ubuntu24-full-x64"],
            "ours/cpu=4/image=ubuntu24-full-x64",
        ),
        (&["runs-on-cpu=4-ram=8-nested-virt=true-run-id=5"], "ours/cpu=4/ram=8/nested-virt=true"),
        (&["runs-on-runner=4cpu-linux-arm64"], "ours/runner=4cpu-linux-arm64"),
        (&["Runs-On=42/CPU=4"], "ours/cpu=4 id=42"),
        (&[" runs-on/cpu=4 "], "ours/cpu=4"),
        (&["runs-on=42//cpu=4/"], "ours/cpu=4 id=42"),
        (&["dependabot"], "ours dependabot"),
        (&["runs-on/cpu=4", "dependabot"], "ours/cpu=4 dependabot"),
        (&["runs-on/cpu=4", "cpu=4"], "ours/cpu=4"),
        (&["runs-on/tag=a/comment=b/run-id=c/tag=d"], "ours"),
    ]);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    check(&[
        (&[], "not ours"),
        (&["self-hosted", "linux", "cpu=4"], "not ours"),
        (&["ubuntu-latest"], "not ours"),
        (&["runs-on-prem"], "not ours"),
        (&["runs-onward/cpu=4"], "not ours"),
        (&["bullpens"], "not ours"),
        (&["xruns-on/cpu=4"], "not ours"),
        (&["warm-"], "not ours"),
        (&["dependabot-2"], "not ours"),
        (
            &["warm-42.1.build"],
            "not ours\nnote: label \"warm-42.1.build\": it belongs to a request, whose runners alone take the job",
        ),
        (
            &["runs-on/cpu=4", "warm-42.1.build"],
            "not ours\nnote: label \"warm-42.1.build\": it belongs to a request, whose runners alone take the job",
        ),
    ]);
}

#[test]
fn every_value_is_read() {
    for (label, expected) in [
        ("cpu=0.5", "cpu=0.5"),
        ("cpu=2.250", "cpu=2.25"),
        ("cpu=4+16", "cpu=4+16"),
        ("cpu=16+2+8", "cpu=2+16"),
        ("cpu=4+4", "cpu=4"),
        ("ram=0.5+1", "ram=0.5+1"),
        ("family=t3", "family=t3*"),
        ("family=c7a.*", "family=c7a.*"),
        ("family=c7a.large", "family=c7a.large"),
        ("family=m7i.*+m7a+M7A", "family=m7a*+m7i.*"),
        ("family=u-6tb1.56xlarge", "family=u-6tb1.56xlarge"),
        ("image=ubuntu24-full-x64", "image=ubuntu24-full-x64"),
        ("ami=ami-0123456789abcdef0", "ami=ami-0123456789abcdef0"),
        ("spot=false", "spot=false"),
        ("spot=never", "spot=false"),
        ("spot=true", "spot=price-capacity-optimized"),
        ("spot=pco", "spot=price-capacity-optimized"),
        ("spot=lp", "spot=lowest-price"),
        ("spot=capacity-optimized", "spot=capacity-optimized"),
        ("volume=80gb", "volume=80gb"),
        ("volume=80gb:gp3:125mibps:3000iops", "volume=80gb:gp3:125mibps:3000iops"),
        ("volume=gp3:30gb:125mbps:3000iops", "volume=30gb:gp3:125mibps:3000iops"),
        ("volume=3000IOPS:250mbs:IO2", "volume=io2:250mibps:3000iops"),
        ("volume=standard:1gb", "volume=1gb:standard"),
        ("sticky=40gb", "sticky=40gb"),
        ("sticky=cache:40gb:gp3:lazy-init", "sticky=cache:40gb:gp3:lazy-init"),
        ("retry=when-interrupted", "retry=when-interrupted"),
        ("retry=false", "retry=false"),
        ("extras=tmpfs+s3-cache", "extras=s3-cache+tmpfs"),
        ("ssh=true/private=false", "ssh=true/private=false"),
        ("debug=true/nested-virt=true", "debug=true/nested-virt=true"),
        ("env=dev/region=eu-west-1", "env=dev/region=eu-west-1"),
    ] {
        let text = described(&[&format!("runs-on/{label}")]);
        assert_eq!(text, format!("ours/{expected}"), "{label}");
        // The written form reads back to the same settings.
        assert_eq!(described(&[&format!("runs-on/{expected}")]), text, "{label}");
    }
}

/// A wrong pair, and the finding about it.
const WRONG: &[(&str, &str)] = &[
    ("cpus=4", "cpus: there is no such key; did you mean \"cpu\"?"),
    ("colour=red", "colour: there is no such key"),
    ("2cpu-linux-x64", "\"2cpu-linux-x64\" is not a pair; write it as key=value"),
    ("cpu=", "cpu: the value is empty"),
    ("cpu=2/cpu=4", "cpu: it is given twice, as \"2\" and as \"4\""),
    ("cpu=four", "cpu: \"four\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("cpu=0", "cpu: \"0\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("cpu=-1", "cpu: \"-1\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("cpu=1e3", "cpu: \"1e3\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("cpu=4+", "cpu: \"\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("cpu=.5", "cpu: \".5\" is not an amount above 0 such as 4, 0.5 or 4+16"),
    ("ram=99999", "ram: \"99999\" is more than there is; the most is 65536"),
    (
        "ram=99999999999999999999",
        "ram: \"99999999999999999999\" is more than there is; the most is 65536",
    ),
    (
        "family=c7a.",
        "family: \"c7a.\" is not a machine family or type such as c7a, c7a.* or c7a.large",
    ),
    ("family=c7a+", "family: \"\" is not a machine family or type such as c7a, c7a.* or c7a.large"),
    (
        "image=${{matrix.image}}",
        "image: \"${{matrix.image}}\" is not a name: letters, digits, `.`, `_` and `-`, at most 64",
    ),
    ("ami=ami-XYZ", "ami: \"ami-XYZ\" is not an image id such as ami-0123456789abcdef0"),
    (
        "spot=yes",
        "spot: \"yes\" is not one of false, never, price-capacity-optimized, true, pco, lowest-price, lp, capacity-optimized, co",
    ),
    ("retry=always", "retry: \"always\" is not one of when-interrupted, false"),
    (
        "extras=s3cache",
        "extras: \"s3cache\" is not one of s3-cache, efs, tmpfs, ecr-cache, otel; did you mean \"s3-cache\"?",
    ),
    ("ssh=yes", "ssh: \"yes\" is not one of true, false"),
    ("ssh=ture", "ssh: \"ture\" is not one of true, false; did you mean \"true\"?"),
    (
        "volume=80",
        "volume: \"80\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    (
        "volume=80tb",
        "volume: \"80tb\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    (
        "volume=gb",
        "volume: \"gb\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    (
        "volume=0gb",
        "volume: \"0gb\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    (
        "volume=80gb:",
        "volume: \"\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    ("volume=80gb:90gb", "volume: \"90gb\" gives the volume's size a second time"),
    ("volume=gp3:io2", "volume: \"io2\" gives the volume's type a second time"),
    ("volume=99999gb", "volume: \"99999gb\" is more than there is; the most is 65536"),
    ("volume=9999999iops", "volume: \"9999999iops\" is more than there is; the most is 1000000"),
    ("sticky=cache", "sticky: a volume that is kept needs a size such as 40gb"),
    (
        "sticky=40gb:cache",
        "sticky: \"cache\" is not a part of a volume; write it as 80gb:gp3:125mibps:3000iops",
    ),
    ("fleet=big", "fleet: fleets belong to another product; name a pool instead, as pool=NAME"),
    ("pool=a b", "pool: \"a b\" is not a name: letters, digits, `.`, `_` and `-`, at most 64"),
];

#[test]
fn what_is_wrong_is_named() {
    for (pair, expected) in WRONG {
        let label = format!("runs-on/{pair}");
        let parsed = parse(&[&label]);
        let errors: Vec<String> = parsed.errors().map(ToString::to_string).collect();
        assert_eq!(errors, [format!("label {label:?}: {expected}")], "{pair}");
    }
    check(&[(
        &["runs-on", "disk=large", "self-hosted"],
        "ours\nnote: label \"self-hosted\": it asks for nothing\n\
         warning: label \"disk=large\": disk: it is deprecated and does nothing; write volume=80gb instead",
    )]);
}

#[test]
fn a_pool_decides_everything_but_the_stack() {
    check(&[(
        &["runs-on=42/pool=small/cpu=many/env=dev/cpus=4/region=eu-west-1/tag=x"],
        "ours/pool=small/env=dev/region=eu-west-1 id=42\n\
         note: label \"runs-on=42/pool=small/cpu=many/env=dev/cpus=4/region=eu-west-1/tag=x\": cpu: it is ignored: the pool decides\n\
         note: label \"runs-on=42/pool=small/cpu=many/env=dev/cpus=4/region=eu-west-1/tag=x\": cpus: it is ignored: the pool decides",
    )]);
    let spec = parse(&["runs-on/pool=small/cpu=4"]).spec;
    assert_eq!(spec.given, BTreeSet::from([LabelKey::Pool]));
}

#[test]
fn there_is_a_bound_on_everything() {
    let errors = |labels: &[String]| -> Vec<String> {
        let parsed = parse(labels);
        assert!(parsed.ours && parsed.findings.len() <= 65);
        parsed.errors().map(ToString::to_string).collect()
    };
    let long = format!("runs-on/comment={}", "x".repeat(300));
    let expected = format!("label {:?}: the label is longer than 256 bytes", &long[..80]);
    assert_eq!(errors(&[long]), [expected]);
    let other = format!("comment={}", "x".repeat(300));
    assert_eq!(errors(&["runs-on".to_owned(), other]).len(), 1);
    let many: Vec<String> = (0..200).map(|n| format!("runs-on={n}")).collect();
    assert_eq!(errors(&many), ["label \"runs-on=100\": the job has more than 100 labels"]);
    let pairs: Vec<String> = (0..90).map(|n| format!("runs-on/tag={n}")).collect();
    assert_eq!(
        errors(&pairs),
        ["label \"runs-on/tag=64\": tag: the labels have more than 64 pairs"]
    );
    let list = format!("runs-on/cpu={}", vec!["1"; 40].join("+"));
    assert!(errors(&[list])[0].ends_with("cpu: the list has more than 32 items"));
    let notes = (0..90).map(|n| format!("word{n}"));
    let crowd: Vec<String> = ["runs-on/cpu=x".to_owned()].into_iter().chain(notes).collect();
    assert_eq!(errors(&crowd).len(), 1, "the notes do not push out the error");
}

fn catalogue() -> Catalogue {
    let mut catalogue = Catalogue::of_classes(&RunnerClass::defaults());
    let small = parse(&["runs-on/cpu=2/ram=8/family=t3/image=ubuntu24-full-x64"]).spec;
    catalogue.runners.insert(ClassName::new("small-x64"), small);
    let arm = parse(&["runs-on/cpu=4/image=ours/spot=true"]).spec;
    catalogue.runners.insert(ClassName::new("arm"), arm);
    catalogue.images.insert("ours".to_owned(), Architecture::Arm64);
    catalogue
}

fn resolved(label: &str) -> String {
    let spec = parse(&[label]).spec;
    match resolve(&spec, &catalogue()) {
        Err(error) => format!("error: {error}"),
        Ok(resolved) => {
            let (kind, class) = match resolved.class {
                ClassRef::Named(class) => (class.name.to_string(), class),
                ClassRef::Anonymous(class) => ("~".to_owned(), class),
            };
            let RunnerClass { vcpu, memory_mib_min, architecture, .. } = class;
            let arch = architecture.as_str();
            format!("{kind} {}-{} {memory_mib_min} {arch}", vcpu.min, vcpu.max)
        }
    }
}

#[test]
fn a_spec_is_a_named_class_or_an_anonymous_one() {
    for (label, expected) in [
        ("runs-on", "~ 2-2 0 x64"),
        ("runs-on/cpu=2/ram=4", "large 2-2 4096 x64"),
        ("runs-on/runner=large", "large 2-2 4096 x64"),
        ("runs-on/runner=large/spot=true/retry=false", "large 2-2 4096 x64"),
        ("runs-on/runner=large/cpu=4/ram=8", "xlarge 4-4 8192 x64"),
        ("runs-on/runner=large/cpu=3", "~ 3-3 4096 x64"),
        ("runs-on/runner=large/volume=80gb", "~ 2-2 4096 x64"),
        ("runs-on/cpu=2/ram=4+8", "~ 2-2 4096 x64"),
        ("runs-on/cpu=2/ram=4/image=ubuntu24-full-x64", "~ 2-2 4096 x64"),
        ("runs-on/runner=small-x64", "small-x64 2-2 8192 x64"),
        ("runs-on/ram=8/family=t3/cpu=2/image=ubuntu24-full-x64", "small-x64 2-2 8192 x64"),
        ("runs-on/runner=small-x64/family=t3a", "~ 2-2 8192 x64"),
        ("runs-on/runner=arm", "arm 4-4 0 arm64"),
        ("runs-on/runner=arm/spot=false", "arm 4-4 0 arm64"),
        ("runs-on/runner=2cpu-linux-x64", "~ 2-2 0 x64"),
        ("runs-on/runner=64cpu-linux-arm64", "~ 64-64 0 arm64"),
        ("runs-on/runner=4cpu-linux-arm64/image=ours", "arm 4-4 0 arm64"),
        ("runs-on/cpu=0.5", "~ 1-1 0 x64"),
        ("runs-on/cpu=1.5+3.5", "~ 2-4 0 x64"),
        ("runs-on/family=c7a.8xlarge", "~ 1-65536 0 x64"),
        ("runs-on/family=c7a.8xlarge+c7i", "~ 2-2 0 x64"),
        ("runs-on/image=ubuntu24-full-arm64", "~ 2-2 0 arm64"),
        ("runs-on/image=windows22-full-x64", "~ 2-2 0 x64"),
        ("runs-on/runner=lagre", "error: there is no runner \"lagre\"; did you mean \"large\"?"),
        (
            "runs-on/runner=0cpu-linux-x64",
            "error: there is no runner \"0cpu-linux-x64\"; did you mean \"2cpu-linux-x64\" or \"4cpu-linux-x64\"?",
        ),
        (
            "runs-on/image=ubuntu24-fll-x64",
            "error: there is no image \"ubuntu24-fll-x64\"; did you mean \"ubuntu24-full-x64\"?",
        ),
        (
            "runs-on/runner=2cpu-linux-x64/image=ours",
            "error: image \"ours\" is for arm64, the runner is x64",
        ),
    ] {
        assert_eq!(resolved(label), expected, "{label}");
    }
}

#[test]
fn equal_shapes_have_equal_names() {
    let name = |label: &str| {
        let resolved = resolve(&parse(&[label]).spec, &Catalogue::default()).unwrap();
        resolved.class.class().name.to_string()
    };
    assert_eq!(name("runs-on/runner=2cpu-linux-x64"), name("bullpen=7/cpu=2/spot=true"));
    assert_eq!(name("runs-on/family=c7+m7"), name("runs-on/family=m7+c7"));
    assert_ne!(name("runs-on/cpu=2"), name("runs-on/cpu=2/ssh=true"));
    assert!(name("runs-on").starts_with("~2cpu-x64-"), "{}", name("runs-on"));
}

#[test]
fn the_policy_refuses_by_name() {
    let policy = Policy {
        all: Rules {
            allow: Some(BTreeSet::from([
                LabelKey::Cpu,
                LabelKey::Ram,
                LabelKey::Volume,
                LabelKey::Pool,
            ])),
            cpu_milli_max: Some(16_000),
            ram_milli_max: Some(64_000),
            volume_gb_max: Some(200),
            volume_iops_max: Some(3_000),
            ..Rules::default()
        },
        repositories: BTreeMap::from([(
            Repository::new("acme/big"),
            Rules { cpu_milli_max: Some(64_000), ..Rules::default() },
        )]),
        ..Policy::default()
    };
    let refused = |repository: &str, label: &str| -> Vec<String> {
        let spec = parse(&[label]).spec;
        let refusals = policy.refusals(&Repository::new(repository), &spec, spec.cpu);
        refusals.iter().map(ToString::to_string).collect()
    };
    assert_eq!(refused("acme/app", "runs-on/cpu=16/ram=64/volume=200gb:3000iops/env=x"), [""; 0]);
    assert_eq!(
        refused("acme/app", "runs-on/cpu=2+32/ssh=true/volume=201gb:4000iops"),
        [
            "the key ssh may not be used by acme/app; leave it out",
            "cpu: 32 is more than acme/app may ask for; the most is 16",
            "volume: 201 is more than acme/app may ask for; the most is 200",
            "volume: 4000 is more than acme/app may ask for; the most is 3000",
        ]
    );
    assert_eq!(refused("Acme/Big", "runs-on/cpu=64"), [""; 0]);
    assert_eq!(refused("acme/big", "runs-on/cpu=65").len(), 1);
    assert_eq!(refused("acme/big", "runs-on/ram=65").len(), 1);
}

/// A named class has the scripts of its image and its own, in separate fields, also for a label
/// that resolves to the class without naming it. An anonymous class has none.
#[test]
fn a_named_class_has_the_scripts_of_its_image_and_of_itself() {
    let file = "images:\n  ours:\n    platform: linux\n    arch: x64\n    ami: ami-0123456789abcdef0\n    \
                preinstall: image once\n    prerun: image each\nrunners:\n  both:\n    cpu: 2\n    \
                image: ours\n    preinstall: once\n    prerun: each\n  plain:\n    cpu: 4\n";
    let config = runs_on::read(file.as_bytes()).into_parts().0.expect("it can be read");
    let scripts = |label: &str| {
        let resolved = resolve(&parse(&[label]).spec, &config.catalogue()).expect("it is known");
        resolved.class.class().scripts.clone()
    };
    let text = |text: &str| Some(text.to_owned());
    let both = Scripts {
        image_preinstall: text("image once"),
        preinstall: text("once"),
        image_prerun: text("image each"),
        prerun: text("each"),
    };
    assert_eq!(scripts("runs-on/runner=both"), both);
    assert_eq!(scripts("runs-on/cpu=2/image=ours"), both, "the label resolves to the same class");
    for none in ["runs-on/runner=plain", "runs-on/runner=both/cpu=8", "runs-on/cpu=16"] {
        assert!(scripts(none).is_empty(), "{none}");
    }
}
