//! The page with every code: it lacks no code, and lists no code that the program never writes.
//!
//! Not here: what the codes mean.

use std::collections::BTreeSet;
use std::fs;

use super::super::timeline::{OTHER_CODES, UNFIT};
use super::*;
use crate::class::Usage;
use crate::ids::{InstanceType, SpecHash, TrustGroup};
use crate::instance::Tier;
use crate::job::OnlyUnused;
use crate::message::Advert;
use crate::pickup::QueueScan;
use crate::request::Request;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/explain.md");

/// The setback after each setback: a new setback does not compile until it is here.
fn setback_after(setback: &Setback) -> Option<Setback> {
    let said = String::new;
    Some(match setback {
        Setback::RaceLost => Setback::PoolEmpty,
        Setback::PoolEmpty => Setback::RunnerTaken,
        Setback::RunnerTaken => Setback::WorkerLost,
        Setback::WorkerLost => Setback::NoCapacity,
        Setback::NoCapacity => Setback::Ceiling,
        Setback::Ceiling => Setback::LaunchFailed { said: said() },
        Setback::LaunchFailed { .. } => Setback::NotStarted,
        Setback::NotStarted => Setback::MachineLost,
        Setback::MachineLost => Setback::NeverRegistered,
        Setback::NeverRegistered => Setback::ListenerEnded,
        Setback::ListenerEnded => Setback::NeverGiven,
        Setback::NeverGiven => Setback::Outage { said: said() },
        Setback::Outage { .. } => Setback::RateLimited,
        Setback::RateLimited => Setback::Forge { said: said() },
        Setback::Forge { .. } => return None,
    })
}

fn reason_after(reason: &Reason) -> Option<Reason> {
    Some(match reason {
        Reason::UnknownPool { .. } => Reason::Refused { why: vec![] },
        Reason::Refused { .. } => Reason::OutOfAttempts { attempts: 5, last: Setback::Ceiling },
        Reason::OutOfAttempts { .. } => Reason::DeadlinePassed { last: None },
        Reason::DeadlinePassed { .. } => Reason::Vanished,
        Reason::Vanished => Reason::Operator,
        Reason::Operator => return None,
    })
}

fn step_after(step: &JobStep) -> Option<JobStep> {
    let instance = held().instance;
    Some(match step {
        JobStep::Heard => JobStep::Routed { lane: class() },
        JobStep::Routed { .. } => JobStep::Begun,
        JobStep::Begun => JobStep::Asked,
        JobStep::Asked => JobStep::Minted,
        JobStep::Minted => JobStep::NothingIdle { unfit: [].into() },
        JobStep::NothingIdle { .. } => claimed(),
        JobStep::Claimed { .. } => JobStep::Launched { instance },
        JobStep::Launched { .. } => JobStep::Warm,
        JobStep::Warm => JobStep::Assigned { how: MachineSource::Created, instance: None },
        JobStep::Assigned { .. } => JobStep::Listens,
        JobStep::Listens => JobStep::Exchanged { instance },
        JobStep::Exchanged { .. } => JobStep::Adopted { instance },
        JobStep::Adopted { .. } => JobStep::Told,
        JobStep::Told => JobStep::RunCancelled,
        JobStep::RunCancelled => JobStep::Released,
        JobStep::Released => JobStep::Unknown,
        JobStep::Unknown => return None,
    })
}

fn codes<T>(first: T, after: fn(&T) -> Option<T>, code: fn(&T) -> &'static str) -> Vec<String> {
    std::iter::successors(Some(first), after).map(|one| code(&one).to_owned()).collect()
}

/// The codes in the first column of the tables under a heading.
fn written(page: &str, heading: &str) -> Vec<String> {
    let section = page.split("\n## ").find(|section| section.starts_with(heading));
    let section = section.unwrap_or_else(|| panic!("no heading {heading:?}"));
    let first = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    section.lines().filter_map(first).collect()
}

#[test]
fn the_page_has_every_code() {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let pool = Reason::UnknownPool { pool: PoolName::new("ci"), suggestions: vec![] };
    let own = PartCode::OWN.iter().map(|code| code.as_str().to_owned()).collect();
    let other = OTHER_CODES.iter().map(|code| (*code).to_owned());
    let steps = codes(JobStep::Heard, step_after, JobStep::code);
    for (heading, codes) in [
        ("Parts of a wait", own),
        ("Setbacks", codes(Setback::RaceLost, setback_after, Setback::code)),
        ("Failures", codes(pool, reason_after, Reason::code)),
        ("Idle machines", UNFIT.iter().map(|(code, _)| (*code).to_owned()).collect()),
        ("Timeline", other.chain(steps).collect::<Vec<_>>()),
    ] {
        let written = written(&page, heading);
        let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
        assert_eq!(set(&written), set(&codes), "{heading}");
        assert_eq!(written.len(), set(&written).len(), "{heading}: each once");
    }
}

/// Every reason for which an idle machine is not for a request has words.
#[test]
fn every_reason_of_the_judge_has_words() {
    let own = SpecHash::new("1:0a");
    let request = Request { spec_hash: Some(own.clone()), ..samples::request() };
    let spoils: [fn(&mut Advert); 8] = [
        |advert| advert.class = ClassName::new("small"),
        |advert| advert.vcpu = 64,
        |advert| advert.memory_mib = 1,
        |advert| advert.deadline = samples::at(0),
        |advert| advert.spec_hash = Some(SpecHash::new("1:ff")),
        |advert| advert.usage = Usage::Spot,
        |advert| advert.instance_type = InstanceType::new("t3.nano"),
        |advert| advert.trust = Some(TrustGroup::new("acme/other")),
    ];
    let advert = || Advert { spec_hash: Some(own.clone()), ..samples::advert("i-1", 5) };
    let unlike = spoils.map(|spoil| {
        let mut advert = advert();
        spoil(&mut advert);
        advert
    });
    let mut scan = QueueScan::default();
    assert_eq!(scan.confirm(unlike.to_vec(), &request, &LIMITS, samples::at(0)), []);
    let kept = [OnlyUnused::UntrustedCode, OnlyUnused::OriginUnknown, OnlyUnused::LabelsNotBound];
    for why in kept {
        let request = Request { only_unused: Some(why), ..request.clone() };
        let used = Advert { tier: Tier::Released, ..advert() };
        assert_eq!(scan.confirm(vec![used], &request, &LIMITS, samples::at(0)), []);
    }
    let codes: BTreeSet<&str> = scan.unfit().keys().copied().collect();
    assert_eq!(codes, UNFIT.iter().map(|(code, _)| *code).collect());
}

/// The page lists exactly the fields that the program prints.
#[test]
fn the_page_shows_the_shape_of_the_json() {
    let page = fs::read_to_string(PAGE).expect("the page is there");
    let answer = serde_json::to_value(cold().explained(17_000)).expect("JSON");
    let fields: BTreeSet<String> = answer.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(written(&page, "JSON").into_iter().collect::<BTreeSet<_>>(), fields);
}
