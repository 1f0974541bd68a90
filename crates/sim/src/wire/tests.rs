//! Tests of the wire.
//!
//! Not here: storms ([`crate::storms`]).

use std::sync::atomic::{AtomicU32, Ordering};

use super::fate::Landing;
use super::*;

fn counting() -> (Arc<AtomicU32>, impl FnOnce() -> u32 + Send + 'static) {
    let count = Arc::new(AtomicU32::new(0));
    let shared = Arc::clone(&count);
    (count, move || shared.fetch_add(1, Ordering::SeqCst))
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_has_had_its_effect() {
    let wire = Wire::calm();
    wire.lose_next_answer();
    let (count, effect) = counting();
    assert_eq!(wire.call("test", effect).await, Reply::Lost);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_landing_has_its_effect_after_its_caller_went_on() {
    let wire = Wire::calm();
    wire.land_next_late(Duration::from_secs(5));
    let (count, effect) = counting();
    assert_eq!(wire.call("test", effect).await, Reply::Lost);
    assert_eq!(count.load(Ordering::SeqCst), 0);
    pass(Duration::from_secs(6)).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_planned_trouble_hits_only_its_call() {
    let wire = Wire::calm();
    let trouble = Trouble::Refuse(Fault::Throttled);
    wire.plan(Planned { port: "fleet".into(), call: 2, trouble });
    assert_eq!(wire.call("fleet", || 1).await, Reply::Answered(1));
    assert_eq!(wire.call("ledger", || 2).await, Reply::Answered(2));
    assert_eq!(wire.call("fleet", || 3).await, Reply::Refused(Fault::Throttled));
    assert_eq!(wire.call("fleet", || 4).await, Reply::Answered(4));
}

#[tokio::test(start_paused = true)]
async fn a_process_can_die_at_a_call_that_landed() {
    let wire = Wire::calm();
    wire.plan(Planned { port: "fleet".into(), call: 1, trouble: Trouble::Kill });
    let (count, effect) = counting();
    tokio::select! {
        biased;
        () = wire.died() => {}
        reply = wire.call("fleet", effect) => panic!("a dead process got {reply:?}"),
    }
    assert_eq!((count.load(Ordering::SeqCst), wire.counts().crashes), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_process_can_die_before_and_after_an_effect() {
    for (awaits, happened) in [(0, 0), (1, 1)] {
        let wire = Wire::calm();
        wire.die_after(awaits);
        let (count, effect) = counting();
        tokio::select! {
            biased;
            () = wire.died() => {}
            reply = wire.call("test", effect) => panic!("a dead process got {reply:?}"),
        }
        assert_eq!(count.load(Ordering::SeqCst), happened, "after {awaits} awaits");
        assert_eq!(wire.counts().crashes, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_may_have_its_effect_and_waits_for_the_timeout() {
    let began = crate::clock::instant();
    for (landing, at_once, later) in [
        (Landing::AtOnce, 1, 1),
        (Landing::After(Duration::from_secs(9)), 0, 1),
        (Landing::Never, 0, 0),
    ] {
        let wire = Wire::calm();
        wire.state().levers.push_back(Fate::Hang(landing, timeout("ledger")));
        let (count, effect) = counting();
        assert_eq!(wire.call("ledger", effect).await, Reply::Lost);
        assert_eq!(count.load(Ordering::SeqCst), at_once, "{landing:?}");
        pass(Duration::from_secs(5)).await;
        assert_eq!(count.load(Ordering::SeqCst), later, "{landing:?}");
    }
    assert_eq!(began.elapsed(), Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_pauses_goes_on_with_an_older_view_of_time() {
    let wire = Wire::calm();
    wire.pause_after(1, Duration::from_secs(90));
    let began = crate::clock::instant();
    let sleeps = async {
        wire.step().await;
        let first = began.elapsed();
        wire.step().await;
        (first, began.elapsed())
    };
    let beside = async {
        pass(Duration::from_secs(5)).await;
        began.elapsed()
    };
    let process = futures_util::future::join(sleeps, beside);
    let ((first, second), beside) = wire.with_pauses(process).await;
    assert_eq!((first, second), (Duration::ZERO, Duration::from_secs(90)));
    assert_eq!(beside, Duration::from_secs(90), "no part of the process goes on");
    assert_eq!(wire.counts().happened["process paused"], 1);
}
