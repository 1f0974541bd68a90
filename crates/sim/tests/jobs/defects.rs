//! Defects of the service: a panic costs one row or one step, and a row that panics again and again
//! is set aside.
//!
//! Not here: a pool's panic (`tests/pools`).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use bullpen_core::ids::JobId;
use bullpen_core::job::{End, JobState, Reason};
use bullpen_core::limits::Limits;
use bullpen_core::ports::Ports;
use bullpen_engine::advertise::AdvertMemory;
use bullpen_engine::jobs::aside;
use bullpen_engine::refresh::refresh;
use bullpen_sim::clock::on_virtual_time;
use bullpen_sim::life::desired;

use super::explained::explained;
use super::service_world::ServiceWorld;

const LONG: Duration = Duration::from_secs(2 * 3_600);
const MINUTE: Duration = Duration::from_secs(60);

/// Every attempt at job 7 panics; the process lives, serves the other jobs, and gives the row up.
#[test]
pub(crate) fn a_row_that_panics_is_set_aside() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.world.outside.forge().break_at("runs-on=7/");
        for job in ["7", "8", "9"] {
            sim.queue(job).await;
        }
        let others = async || sim.is_settled("8").await && sim.is_settled("9").await;
        assert!(sim.serve_until("first", 5 * MINUTE, |_| true, others).await);
        let over = async || sim.is_settled("7").await;
        assert!(!sim.serve_until("second", 40 * MINUTE, |_| true, over).await);
        let onlooker = sim.world.onlooker();
        let panics = onlooker.defects.counts();
        let most = u64::from(Limits::DEFAULT.set_aside_after);
        // Each process has its own count, and the first served for a moment only.
        assert!((most..2 * most).contains(&panics["row"]), "{panics:?}");
        assert_eq!(panics.len(), 1, "{panics:?}");
        let noted = aside::note_of(&onlooker, &JobId::new("7")).await.expect("calm");
        assert!(noted.as_ref().is_some_and(|noted| noted.what.contains("a planned defect")));
        let explanation = explained(&sim, "7", noted.as_ref()).await;
        assert!(explanation.now.starts_with("it is set aside"), "{}", explanation.text());
        assert!(sim.serve_until("third", LONG, |_| true, over).await);
        let row = sim.row("7").await;
        let is_told = matches!(
            row.state,
            JobState::Ended { end: End::Failed(Reason::DeadlinePassed { .. }), .. }
        );
        assert!(is_told, "{row:?}");
        sim.end().await;
    });
}

/// The store refuses every change of row 7 for good, as it does if the row is too large.
#[test]
pub(crate) fn a_row_that_fails_for_good_is_set_aside_and_tried_again() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let ledger = sim.world.outside.ledger();
        ledger.fail_row_changes(|job| job.as_str() == "7");
        for job in ["7", "8", "9"] {
            sim.queue(job).await;
        }
        let onlooker = sim.world.onlooker();
        let noted = async || aside::note_of(&onlooker, &JobId::new("7")).await.expect("calm");
        let (clock, mended_at) = (sim.world.outside.clock(), Cell::new(None));
        let over = async || {
            if let Some(noted) = noted().await
                && mended_at.get().is_none()
            {
                assert!(noted.what.contains("a planned fault"), "{noted:?}");
                mended_at.set(Some(clock.elapsed()));
                ledger.fail_row_changes(|_| false);
            }
            let others = sim.is_settled("8").await && sim.is_settled("9").await;
            others && sim.is_settled("7").await
        };
        assert!(sim.serve_until("first", 40 * MINUTE, |_| true, over).await);
        let waited = mended_at.get().map(|at| clock.elapsed().saturating_sub(at));
        let lasts = Limits::DEFAULT.set_aside_for;
        assert!(waited.is_some_and(|waited| waited >= lasts), "it was left alone: {waited:?}");
        assert_eq!(sim.github.notices(), []);
        sim.end().await;
    });
}

/// The store refuses every change of every row for a while: that is no row's fault.
#[test]
pub(crate) fn an_outage_sets_no_row_aside() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        let ledger = sim.world.outside.ledger();
        ledger.fail_row_changes(|_| true);
        let jobs = ["7", "8", "9"];
        for job in jobs {
            sim.queue(job).await;
        }
        let onlooker = sim.world.onlooker();
        let over = async || {
            if sim.world.outside.clock().elapsed() > 10 * MINUTE {
                ledger.fail_row_changes(|_| false);
            }
            for job in jobs {
                if !sim.is_settled(job).await {
                    return false;
                }
            }
            true
        };
        assert!(sim.serve_until("first", 14 * MINUTE, |_| true, over).await);
        assert_eq!(aside::all(&onlooker).await, Ok(Vec::new()));
        sim.end().await;
    });
}

/// One step of the upkeep panics; the others run.
#[test]
pub(crate) fn a_step_that_panics_stops_no_other() {
    on_virtual_time(async {
        let sim = ServiceWorld::new(5).await;
        sim.world.outside.forge().break_at("runners");
        let stack = sim.world.onlooker();
        let reports = refresh(&stack, &desired(), &AdvertMemory::default()).await;
        let failed: Vec<&str> = reports
            .iter()
            .filter(|report| report.outcome.is_err())
            .map(|report| report.step)
            .collect();
        assert_eq!(failed, ["ghosts"]);
        assert_eq!(stack.defects.counts(), BTreeMap::from([("step", 1)]));
    });
}
