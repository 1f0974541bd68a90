//! Which machine each job gets.
//!
//! Not here: claiming.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::ids::{JobId, TrustGroup};
use crate::instance::Record;
use crate::job::OnlyUnused;

fn idle(id: &str, tier: Tier, since: u64, trust: Option<&str>) -> Record {
    let mut record = ready(id, tier, since).record;
    record.trust = trust.map(TrustGroup::new);
    record
}

fn seekers(trusts: &[&str]) -> Vec<WaitingJob> {
    let seeker = |(n, trust): (usize, &&str)| WaitingJob {
        job: JobId::new(n.to_string()),
        trust: TrustGroup::new(trust),
        only_unused: None,
    };
    trusts.iter().enumerate().map(seeker).collect()
}

fn picked(records: &[Record], trusts: &[&str]) -> Vec<String> {
    let picked = pick(records, &seekers(trusts), &LIMITS, at(NOW));
    picked.iter().map(|one| format!("{} {} {:?}", one.job, one.record.id, one.tier)).collect()
}

#[test]
fn released_before_hot_before_stopped_and_the_oldest_first() {
    let records = [
        idle("a", Tier::Stopped, 0, None),
        idle("b", Tier::Hot, 20, None),
        idle("c", Tier::Hot, 10, None),
        idle("d", Tier::Released, 30, Some("acme/app")),
        idle("e", Tier::Hot, 10, None),
    ];
    let app = ["acme/app"; 6];
    let expected = ["0 d Released", "1 c Hot", "2 e Hot", "3 b Hot", "4 a Stopped"];
    assert_eq!(picked(&records, &app), expected);
}

#[test]
fn a_used_machine_serves_its_own_group_only() {
    let records = [
        idle("a", Tier::Released, 0, Some("acme/app")),
        idle("b", Tier::Hot, 0, None),
        idle("c", Tier::Stopped, 0, Some("acme/lib")),
    ];
    assert_eq!(
        picked(&records, &["acme/web", "acme/web", "acme/lib", "acme/app"]),
        ["0 b Hot", "2 c Stopped", "3 a Released",]
    );
}

/// A stopped machine that was claimed but not started is as unused as before.
#[test]
fn a_job_that_may_have_no_used_machine_gets_a_hot_or_a_stopped_one() {
    let records = [
        idle("a", Tier::Released, 0, Some("acme/app")),
        idle("b", Tier::Stopped, 0, Some("acme/app")),
        idle("c", Tier::Hot, 0, None),
        idle("d", Tier::Released, 0, None),
        idle("e", Tier::Released, 0, Some("acme/web")),
    ];
    let kept =
        |job: WaitingJob| WaitingJob { only_unused: Some(OnlyUnused::LabelsNotBound), ..job };
    let jobs: Vec<WaitingJob> = seekers(&["acme/app"; 3]).into_iter().map(kept).collect();
    let picked = pick(&records, &jobs, &LIMITS, at(NOW));
    let picked: Vec<&str> = picked.iter().map(|one| one.record.id.as_str()).collect();
    assert_eq!(picked, ["c", "b"]);
    let mut line = line_of(&jobs);
    line.look(&jobs[2], records.to_vec(), &BTreeSet::new(), &LIMITS, at(NOW));
    assert_eq!(line.take(&jobs[2]), Some(LineResult::Nothing { withheld: 2 }), "a and d");
}

/// A job that turns out to be untrusted leaves its machine to the next job.
#[test]
fn a_machine_that_a_job_may_not_have_is_there_for_the_others() {
    let records = [idle("a", Tier::Released, 0, Some("x"))];
    let jobs = seekers(&["x", "x"]);
    let mut line = line_of(&jobs[..1]);
    assert_eq!(looks(&mut line, &records, &[&jobs[0], &jobs[1]]), ["a", "nothing"]);
    line.put_back(&records[0].id);
    assert_eq!(looks(&mut line, &records, &[&jobs[1]]), ["a"]);
}

#[test]
fn what_is_not_idle_or_soon_over_is_not_picked() {
    let margin = LIMITS.not_claimable_before_deadline;
    let ends = |deadline| {
        let state = State::Idle { tier: Tier::Hot, since: at(0), deadline, shared: false };
        Record { trust: None, ..standby("i", state).record }
    };
    let edge = at(NOW).after(margin);
    assert_eq!(picked(&[ends(edge)], &["x"]), [""; 0]);
    assert_eq!(picked(&[ends(edge.after(std::time::Duration::from_millis(1)))], &["x"]).len(), 1);
    let tainted = Record { tainted: true, ..idle("i", Tier::Hot, 0, None) };
    for record in [tainted, stopping("i").record, warm("i").record] {
        assert_eq!(picked(&[Record { trust: None, ..record }], &["x"]), [""; 0]);
    }
    // Old machines serve while they stand by.
    let old = old(hot("i")).record;
    assert_eq!(picked(&[Record { trust: None, ..old }], &["x"]), ["0 i Hot"]);
}

fn line_of(jobs: &[WaitingJob]) -> PoolLine {
    let mut line = PoolLine::default();
    for job in jobs {
        line.join(job.clone());
    }
    line
}

/// The machine that each of these jobs finds in turn. Every look sees the whole pool.
fn looks(line: &mut PoolLine, records: &[Record], seekers: &[&WaitingJob]) -> Vec<String> {
    let look = |seeker: &&WaitingJob| loop {
        match line.take(seeker) {
            Some(LineResult::Machine(sighting)) => break sighting.id.to_string(),
            Some(LineResult::Nothing { .. }) => break "nothing".to_owned(),
            None => line.look(seeker, records.to_vec(), &BTreeSet::new(), &LIMITS, at(NOW)),
        }
    };
    seekers.iter().map(look).collect()
}

#[test]
fn the_first_look_is_for_all_jobs_in_their_order() {
    let records = [
        idle("a", Tier::Stopped, 0, None),
        idle("b", Tier::Hot, 0, None),
        idle("c", Tier::Hot, 1, None),
    ];
    let jobs = seekers(&["x", "x", "x", "x"]);
    let mut line = line_of(&jobs);
    line.look(&jobs[2], records.to_vec(), &BTreeSet::new(), &LIMITS, at(NOW));
    // The later looks get an empty pool, because the results are there already.
    assert_eq!(
        looks(&mut line, &[], &[&jobs[3], &jobs[2], &jobs[1], &jobs[0]]),
        ["nothing", "a", "c", "b"]
    );
}

#[test]
fn a_job_that_lost_a_machine_is_sent_to_a_machine_no_job_was_sent_to() {
    let records = ["a", "b", "c"].map(|id| idle(id, Tier::Hot, 0, None));
    let jobs = seekers(&["x", "x"]);
    let mut line = line_of(&jobs);
    let order = [&jobs[0], &jobs[0], &jobs[1], &jobs[1], &jobs[0]];
    assert_eq!(looks(&mut line, &records, &order), ["a", "c", "b", "nothing", "nothing"]);
}

/// A result is for a job of one trust group: if the job's group changes, it does not apply.
#[test]
fn a_job_of_another_trust_group_looks_for_itself() {
    let records = [idle("a", Tier::Hot, 0, Some("x")), idle("b", Tier::Hot, 1, None)];
    let [was, is] = ["x", "y"].map(|trust| seekers(&[trust]).remove(0));
    let mut line = line_of(std::slice::from_ref(&was));
    line.look(&was, records.to_vec(), &BTreeSet::new(), &LIMITS, at(NOW));
    assert_eq!(looks(&mut line, &records, &[&is]), ["b"]);
}

#[test]
fn what_the_cloud_was_short_of_is_not_started() {
    let records = [idle("a", Tier::Hot, 0, None), idle("b", Tier::Stopped, 0, None)];
    let short = BTreeSet::from([records[0].facts.offering()]);
    let jobs = seekers(&["x", "x"]);
    let mut line = line_of(&jobs);
    line.look(&jobs[0], records.to_vec(), &short, &LIMITS, at(NOW));
    assert_eq!(looks(&mut line, &[], &[&jobs[0], &jobs[1]]), ["a", "nothing"]);
}

proptest! {
    /// No machine and no job comes twice, no job gets another trust group's machine, and no job
    /// gets none while a machine that fits is left. The order of the records does not matter.
    #[test]
    fn picking_is_a_matching(
        machines in prop::collection::vec((0..3_usize, 0..4_u64, 0..4_usize), 0..12),
        jobs in prop::collection::vec(0..3_usize, 0..12),
    ) {
        const TRUSTS: [&str; 3] = ["a", "b", "c"];
        let tiers = [Tier::Released, Tier::Hot, Tier::Stopped];
        let records: Vec<_> = machines
            .iter()
            .enumerate()
            .map(|(n, (tier, since, trust))| {
                idle(&format!("i{n}"), tiers[*tier], *since, TRUSTS.get(*trust).copied())
            })
            .collect();
        let seekers = seekers(&jobs.iter().map(|job| TRUSTS[*job]).collect::<Vec<_>>());
        let picked = pick(&records, &seekers, &LIMITS, at(NOW));
        let mut turned = records.clone();
        turned.reverse();
        prop_assert_eq!(&picked, &pick(&turned, &seekers, &LIMITS, at(NOW)));
        let fits = |record: &Record, seeker: &WaitingJob| {
            record.trust.as_ref().is_none_or(|trust| *trust == seeker.trust)
        };
        let mut left: Vec<&Record> = records.iter().collect();
        for seeker in &seekers {
            match picked.iter().find(|one| one.job == seeker.job) {
                Some(one) => {
                    prop_assert!(fits(one.record, seeker));
                    let before = left.len();
                    left.retain(|record| record.id != one.record.id);
                    prop_assert_eq!(left.len(), before - 1);
                }
                None => prop_assert!(!left.iter().any(|record| fits(record, seeker))),
            }
        }
    }
}
