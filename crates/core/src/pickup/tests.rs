//! Tests of judging and scanning: every verdict, what comes before what, and when a scan is over.
//!
//! Not here: the text of messages, whose tests hold it against checked-in files.

use std::time::Duration;

use super::*;
use crate::class::Usage;
use crate::ids::{ClassName, InstanceType, TrustGroup};
use crate::instance::Tier;
use crate::request::TypePattern;
use crate::samples::{LIMITS, advert, at, request};

fn verdict(advert: &Advert) -> AdvertVerdict {
    judge(advert, &request(), &LIMITS, at(0))
}

fn with(change: impl FnOnce(&mut Advert)) -> Advert {
    let mut advert = advert("i-1", 5);
    change(&mut advert);
    advert
}

fn discarded(why: DiscardWhy) -> AdvertVerdict {
    AdvertVerdict::Discard(why)
}

fn text(advert: &Advert) -> String {
    message::encode(advert)
}

fn scan(scan: &mut QueueScan, bodies: &[&str]) -> JudgedBatch {
    let bodies = bodies.iter().map(|&body| body.to_owned()).collect();
    scan.batch(bodies, &request(), &LIMITS, at(0))
}

fn other_type(id: &str, generation: u64) -> Advert {
    Advert { instance_type: InstanceType::new("m5.large"), ..advert(id, generation) }
}

#[test]
fn what_the_request_wants_is_passed_on() {
    assert_eq!(verdict(&advert("i-1", 5)), AdvertVerdict::PassOn);
    let unused = with(|advert| advert.trust = None);
    assert_eq!(verdict(&unused), AdvertVerdict::PassOn, "an unused machine serves any group");
    let larger = with(|advert| advert.memory_mib = 8_192);
    assert_eq!(verdict(&larger), AdvertVerdict::PassOn, "memory has no upper end");
}

#[test]
fn a_used_machine_is_put_back_by_a_job_that_may_not_have_one() {
    let why = OnlyUnused::UntrustedCode;
    let request = Request { only_unused: Some(why), ..request() };
    let judged = |advert: &Advert| judge(advert, &request, &LIMITS, at(0));
    let used = AdvertVerdict::Requeue(RequeueWhy::UsedBefore(why));
    assert_eq!(judged(&advert("i-1", 5)), used);
    assert_eq!(judged(&with(|advert| advert.trust = None)), used, "its tier says that it was used");
    for tier in [Tier::Hot, Tier::Stopped] {
        assert_eq!(judged(&with(|advert| advert.tier = tier)), AdvertVerdict::PassOn);
    }
}

#[test]
fn an_unusable_machine_is_discarded_with_its_reason() {
    let margin = LIMITS.not_claimable_before_deadline;
    for (advert, why) in [
        (with(|a| a.class = ClassName::new("xlarge")), DiscardWhy::WrongClass),
        (with(|a| a.vcpu = 1), DiscardWhy::VcpuOutsideClass),
        (with(|a| a.vcpu = 3), DiscardWhy::VcpuOutsideClass),
        (with(|a| a.memory_mib = 4_095), DiscardWhy::MemoryBelowClass),
        (with(|a| a.deadline = at(0)), DiscardWhy::Expired),
        (with(|a| a.deadline = at(0).after(margin)), DiscardWhy::Expired),
    ] {
        assert_eq!(verdict(&advert), discarded(why));
    }
    let just = at(0).after(margin + Duration::from_millis(1));
    assert_eq!(verdict(&with(|a| a.deadline = just)), AdvertVerdict::PassOn);
}

#[test]
fn a_machine_for_another_request_is_put_back_with_its_reason() {
    for (advert, why) in [
        (with(|a| a.usage = Usage::Spot), RequeueWhy::UsageDiffers),
        (with(|a| a.instance_type = InstanceType::new("m5.large")), RequeueWhy::TypeNotAllowed),
        (with(|a| a.trust = Some(TrustGroup::new("acme/other"))), RequeueWhy::TrustDiffers),
    ] {
        assert_eq!(verdict(&advert), AdvertVerdict::Requeue(why));
    }
    let mut nothing = request();
    nothing.allowed_types = Vec::new();
    let refused = judge(&advert("i-1", 5), &nothing, &LIMITS, at(0));
    assert_eq!(refused, AdvertVerdict::Requeue(RequeueWhy::TypeNotAllowed), "an empty list");
    nothing.allowed_types = vec![TypePattern::new("C6I.*")];
    assert_eq!(judge(&advert("i-1", 5), &nothing, &LIMITS, at(0)), AdvertVerdict::PassOn);
}

#[test]
fn of_several_reasons_the_first_in_this_order_counts() {
    let mut advert = with(|a| {
        a.class = ClassName::new("xlarge");
        a.vcpu = 64;
        a.memory_mib = 1;
        a.deadline = at(0);
        a.usage = Usage::Spot;
        a.instance_type = InstanceType::new("m5.large");
        a.trust = Some(TrustGroup::new("acme/other"));
    });
    assert_eq!(verdict(&advert), discarded(DiscardWhy::WrongClass));
    advert.class = ClassName::new("large");
    assert_eq!(verdict(&advert), discarded(DiscardWhy::VcpuOutsideClass));
    advert.vcpu = 2;
    assert_eq!(verdict(&advert), discarded(DiscardWhy::MemoryBelowClass));
    advert.memory_mib = 4_096;
    assert_eq!(verdict(&advert), discarded(DiscardWhy::Expired));
    advert.deadline = at(420);
    assert_eq!(verdict(&advert), AdvertVerdict::Requeue(RequeueWhy::UsageDiffers));
    advert.usage = Usage::OnDemand;
    assert_eq!(verdict(&advert), AdvertVerdict::Requeue(RequeueWhy::TypeNotAllowed));
    advert.instance_type = InstanceType::new("c7a.large");
    assert_eq!(verdict(&advert), AdvertVerdict::Requeue(RequeueWhy::TrustDiffers));
    advert.trust = None;
    assert_eq!(verdict(&advert), AdvertVerdict::PassOn);
}

#[test]
fn an_empty_batch_ends_the_scan_globally() {
    let judged = scan(&mut QueueScan::default(), &[]);
    assert_eq!(
        judged,
        JudgedBatch { exhausted: Some(Exhausted::Globally), ..JudgedBatch::default() }
    );
}

#[test]
fn a_batch_is_dealt_into_candidates_put_backs_and_counted_discards() {
    let (good, other) = (advert("i-1", 5), text(&other_type("i-2", 7)));
    let expired = text(&Advert { deadline: at(0), ..advert("i-3", 1) });
    let no_usage =
        r#"{"id":"i-4","resourceClass":"large","instanceType":"c6i.large","cpu":2,"mmem":4096}"#;
    let bodies = [&text(&good), &other, &expired, no_usage, "not json", "{}"];
    let judged = scan(&mut QueueScan::default(), &bodies);
    let expected = JudgedBatch {
        pass_on: vec![good],
        requeue: vec![(other, RequeueWhy::TypeNotAllowed)],
        discarded: [
            (DiscardWhy::Expired, 1),
            (DiscardWhy::UsageMissing, 1),
            (DiscardWhy::Unreadable, 2),
        ]
        .into(),
        exhausted: None,
    };
    assert_eq!(judged, expected);
}

#[test]
fn a_message_of_an_unknown_version_is_put_back_verbatim() {
    let newer = r#" {"v": 2, "id": ["changed", "entirely"],  "cpu": "two"} "#;
    let judged = scan(&mut QueueScan::default(), &[newer]);
    assert_eq!(judged.requeue, [(newer.to_owned(), RequeueWhy::UnknownVersion)]);
    assert_eq!(judged.exhausted, None, "one sighting is no lap");
}

#[test]
fn put_backs_keep_their_exact_text() {
    let body = text(&other_type("i-1", 5)).replacen('{', "{ \"theirs\" : 1,", 1);
    let judged = scan(&mut QueueScan::default(), &[&body]);
    assert_eq!(judged.requeue, [(body, RequeueWhy::TypeNotAllowed)]);
}

#[test]
fn the_same_generation_is_offered_once() {
    let (mut memory, body) = (QueueScan::default(), text(&advert("i-1", 5)));
    let judged = scan(&mut memory, &[&body, &body]);
    assert_eq!(judged.pass_on.len(), 1);
    assert_eq!(judged.discarded, [(DiscardWhy::Outdated, 1)].into());
    let older = text(&advert("i-1", 4));
    assert_eq!(scan(&mut memory, &[&older]).discarded, [(DiscardWhy::Outdated, 1)].into());
    let newer = text(&advert("i-1", 6));
    assert_eq!(scan(&mut memory, &[&newer]).pass_on, [advert("i-1", 6)]);
}

#[test]
fn a_message_without_a_generation_is_offered_once_and_gives_way_to_one_with() {
    let unknown = Advert { generation: None, ..advert("i-1", 0) };
    let (mut memory, body) = (QueueScan::default(), text(&unknown));
    assert_eq!(scan(&mut memory, &[&body]).pass_on, [unknown]);
    assert_eq!(scan(&mut memory, &[&body]).discarded, [(DiscardWhy::Outdated, 1)].into());
    assert_eq!(scan(&mut memory, &[&text(&advert("i-1", 1))]).pass_on.len(), 1);
    assert_eq!(scan(&mut memory, &[&body]).discarded, [(DiscardWhy::Outdated, 1)].into());
}

#[test]
fn a_mismatch_older_than_what_was_read_is_dropped_and_does_not_go_round() {
    let (mut memory, stale) = (QueueScan::default(), text(&other_type("i-1", 4)));
    scan(&mut memory, &[&text(&advert("i-1", 5))]);
    assert_eq!(scan(&mut memory, &[&stale]).discarded, [(DiscardWhy::Outdated, 1)].into());
    let (mut memory, current) = (QueueScan::default(), text(&other_type("i-1", 5)));
    scan(&mut memory, &[&current]);
    assert_eq!(scan(&mut memory, &[&stale]).requeue, [], "a mismatch is read too");
    assert_eq!(scan(&mut memory, &[&current]).requeue.len(), 1, "the newest itself goes back");
}

#[test]
fn a_stale_match_is_not_offered_after_a_newer_mismatch() {
    let mut memory = QueueScan::default();
    scan(&mut memory, &[&text(&other_type("i-1", 5))]);
    let judged = scan(&mut memory, &[&text(&advert("i-1", 4))]);
    assert_eq!(judged.discarded, [(DiscardWhy::Outdated, 1)].into());
}

#[test]
fn a_batch_of_nothing_but_known_mismatches_is_a_completed_lap() {
    let (one, two) = (text(&other_type("i-1", 5)), text(&other_type("i-2", 5)));
    let mut memory = QueueScan::default();
    assert_eq!(scan(&mut memory, &[&one]).exhausted, None);
    assert_eq!(scan(&mut memory, &[&two, &one]).exhausted, None, "one of them is new");
    let lap = scan(&mut memory, &[&one, &two]);
    assert_eq!(lap.exhausted, Some(Exhausted::Locally));
    assert_eq!(lap.requeue.len(), 2, "both still go back");
}

#[test]
fn a_double_within_one_batch_is_no_lap() {
    let one = text(&other_type("i-1", 5));
    assert_eq!(scan(&mut QueueScan::default(), &[&one, &one]).exhausted, None);
}

#[test]
fn a_machine_that_has_become_a_match_ends_no_lap() {
    let mut memory = QueueScan::default();
    let before = Advert { trust: Some(TrustGroup::new("acme/other")), ..advert("i-1", 5) };
    scan(&mut memory, &[&text(&before)]);
    let judged = scan(&mut memory, &[&text(&advert("i-1", 7))]);
    assert_eq!((judged.pass_on.len(), judged.exhausted), (1, None));
}

#[test]
fn one_id_seen_more_often_than_allowed_ends_the_scan_and_still_goes_back() {
    let mut memory = QueueScan::default();
    let (again, mut seen) = (text(&other_type("i-1", 5)), 0);
    loop {
        // Something new in every batch, so that no lap ends the scan first.
        seen += 1;
        let fresh = text(&other_type(&format!("i-new-{seen}"), 1));
        let judged = scan(&mut memory, &[&fresh, &again]);
        assert!(judged.requeue.contains(&(again.clone(), RequeueWhy::TypeNotAllowed)));
        if judged.exhausted.is_some() {
            assert_eq!(judged.exhausted, Some(Exhausted::Locally));
            break;
        }
        assert!(seen < 100, "the scan never ends");
    }
    assert_eq!(seen, LIMITS.sightings_max + 1);
}

#[test]
fn sightings_count_for_every_verdict() {
    let (mut memory, body) = (QueueScan::default(), text(&advert("i-1", 5)));
    for _ in 0..LIMITS.sightings_max {
        assert_eq!(scan(&mut memory, &[&body]).exhausted, None);
    }
    assert_eq!(scan(&mut memory, &[&body]).exhausted, Some(Exhausted::Locally));
}

#[test]
fn the_directory_offers_only_what_matches_and_is_new() {
    let mut memory = QueueScan::default();
    scan(&mut memory, &[&text(&advert("i-1", 5)), &text(&other_type("i-2", 5))]);
    let directory = vec![
        advert("i-1", 5),
        other_type("i-2", 5),
        advert("i-3", 2),
        Advert { deadline: at(1), ..advert("i-4", 2) },
        advert("i-3", 2),
    ];
    let found = memory.confirm(directory.clone(), &request(), &LIMITS, at(0));
    assert_eq!(found, [advert("i-3", 2)]);
    assert_eq!(memory.confirm(directory, &request(), &LIMITS, at(0)), [], "and only once");
    let later = memory.confirm(vec![advert("i-1", 7)], &request(), &LIMITS, at(0));
    assert_eq!(later, [advert("i-1", 7)], "idle again since");
}

#[test]
fn reasons_have_stable_codes() {
    assert_eq!(RequeueWhy::TrustDiffers.to_string(), "trust-differs");
    assert_eq!(RequeueWhy::UnknownVersion.as_str(), "unknown-version");
    assert_eq!(DiscardWhy::VcpuOutsideClass.to_string(), "vcpu-outside-class");
    assert_eq!(DiscardWhy::Outdated.as_str(), "outdated");
}
