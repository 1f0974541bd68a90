//! Reservations: each machine counts once under every ceiling, from the intent to the burial.
//!
//! Not here: choosing the ceilings.

use bullpen_core::creation::{Ceiling, Intent, Scope};
use bullpen_core::ids::{ClassName, PoolName};
use bullpen_core::ports::{Ledger, Recorded, Reserved, Written};
use futures_util::future::{join, join_all};

use super::fixtures::{
    HOUR, condemned, gone, intent, job, moved, newborn, record, reserve, step, stored, winners,
};
use crate::contract::{Harness, answered, landed, lost, won};

fn at_most(scope: Scope, max: u32) -> Ceiling {
    Ceiling { scope, max }
}

fn stack(max: u32) -> [Ceiling; 1] {
    [at_most(Scope::Stack, max)]
}

async fn outstanding(ledger: &impl Ledger, intent: &Intent) -> u32 {
    answered(ledger.intent(&intent.id).await).expect("the intent is there").outstanding
}

/// Checks that exactly this many more machines fit under a ceiling on the whole stack.
async fn fits(ledger: &impl Ledger, like: &Intent, max: u32, more: u32) {
    for (wanted, granted) in [(more + 1, false), (more, true)] {
        if wanted == 0 {
            continue;
        }
        let name = format!("probe-{max}-{wanted}");
        let probe = Intent { outstanding: wanted, ..intent(&name, wanted, like.deadline) };
        let answer = won(ledger.reserve(&probe, &stack(max)).await);
        assert_eq!(answer == Reserved::Granted, granted, "{wanted} more: {answer:?}");
        if granted {
            let seen = answered(ledger.intent(&probe.id).await).expect("it was granted");
            won(ledger.give_back(&seen).await);
        }
    }
}

/// Fifty reservations at once, of two classes, with and without a pool: no ceiling is exceeded, and
/// no reservation that fits is refused.
pub async fn reservations_never_exceed_a_ceiling<H: Harness<Port: Ledger>>(harness: H) {
    let deadline = harness.now().after(HOUR);
    let ceilings = [
        at_most(Scope::Stack, 60),
        at_most(Scope::Class(ClassName::new("large")), 25),
        at_most(Scope::Class(ClassName::new("small")), 40),
        at_most(Scope::Pool(PoolName::new("linux")), 11),
    ];
    let intents: Vec<Intent> = (0..50_u32)
        .map(|number| {
            let class = ClassName::new(if number % 2 == 0 { "large" } else { "small" });
            let pool = (number % 3 == 0).then(|| PoolName::new("linux"));
            let wanted = number % 4 + 1;
            Intent { class, pool, ..intent(&format!("intent-{number:02}"), wanted, deadline) }
        })
        .collect();
    let handles: Vec<_> = intents.iter().map(|_| harness.another_process()).collect();
    let writes = handles.iter().zip(&intents).map(|(ledger, it)| ledger.reserve(it, &ceilings));
    let answers: Vec<_> = join_all(writes).await.into_iter().map(won).collect();
    let granted: Vec<&Intent> = (intents.iter().zip(&answers))
        .filter(|(_, answer)| **answer == Reserved::Granted)
        .map(|(intent, _)| intent)
        .collect();
    let used = |scope: &Scope| -> u32 {
        let counted = granted.iter().filter(|it| scope.counts(&it.class, it.pool.as_ref()));
        counted.map(|it| it.outstanding).sum()
    };
    for ceiling in &ceilings {
        let used = used(&ceiling.scope);
        assert!(used <= ceiling.max, "{} holds {used} of {}", ceiling.scope, ceiling.max);
    }
    for (intent, answer) in intents.iter().zip(&answers) {
        let Reserved::Short(short) = answer else { continue };
        assert!(short.scope.counts(&intent.class, intent.pool.as_ref()), "{short}");
        // No capacity was freed since, so a refused reservation still does not fit.
        assert!(used(&short.scope) + intent.outstanding > short.max, "{short}");
        assert_eq!(answered(harness.port().intent(&intent.id).await), None);
    }
    assert!(
        answers.iter().any(|answer| matches!(answer, Reserved::Short(_))),
        "no reservation was refused"
    );
}

/// A repeated reservation counts nothing and returns the stored intent.
pub async fn a_reservation_is_made_once<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 3, now.after(HOUR));
    assert_eq!(won(ledger.reserve(&mine, &stack(5)).await), Reserved::Granted);
    record(ledger, &newborn("i-1", &mine, now)).await;
    for max in [5, 1] {
        match won(harness.another_process().reserve(&mine, &stack(max)).await) {
            Reserved::Known(known) => {
                assert_eq!(known, answered(ledger.intent(&mine.id).await).expect("it is stored"));
                assert_eq!(known.outstanding, 2, "one machine is recorded");
            }
            other => panic!("the repeated reservation was {other:?}"),
        }
    }
    fits(ledger, &mine, 5, 2).await;
}

/// A reservation that exceeds one ceiling is not counted under the others.
pub async fn a_reservation_that_does_not_fit_leaves_nothing<H: Harness<Port: Ledger>>(harness: H) {
    let ledger = harness.port();
    let large = intent("large", 3, harness.now().after(HOUR));
    let ceilings = [at_most(Scope::Stack, 3), at_most(Scope::Class(large.class.clone()), 2)];
    match won(ledger.reserve(&large, &ceilings).await) {
        Reserved::Short(short) => {
            assert_eq!((short.scope, short.max), (Scope::Class(large.class.clone()), 2));
            assert_eq!((short.used, short.wanted), (0, 3));
        }
        other => panic!("three under a ceiling of two was {other:?}"),
    }
    assert_eq!(answered(ledger.intent(&large.id).await), None);
    fits(ledger, &large, 3, 3).await;
}

/// After a reservation's answer was lost, a repeat finds the reservation.
pub async fn a_reservation_whose_answer_was_lost_is_known<H: Harness<Port: Ledger>>(harness: H) {
    let ledger = harness.port();
    let mine = intent("mine", 2, harness.now().after(HOUR));
    let answer_lost = harness.lose_next_answer();
    landed(ledger.reserve(&mine, &stack(3)).await, answer_lost);
    assert_eq!(outstanding(ledger, &mine).await, 2);
    let again = won(ledger.reserve(&mine, &stack(3)).await);
    assert!(matches!(again, Reserved::Known(_)), "{again:?}");
    fits(ledger, &mine, 3, 1).await;
}

/// Recording a machine again returns its present record, and takes nothing from its intent.
pub async fn a_machine_is_recorded_once<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 3, now.after(HOUR));
    reserve(ledger, &mine).await;
    let born = newborn("i-1", &mine, now);
    let answer_lost = harness.lose_next_answer();
    landed(ledger.record(&born).await, answer_lost);
    let created = stored(ledger, &born.id).await;
    assert_eq!((&created.state, &created.facts), (&born.state, &born.facts));
    assert_eq!(won(ledger.record(&born).await), Recorded::Known(created.clone()));
    let ending = step(ledger, &created, &condemned(now)).await;
    assert_eq!(won(ledger.record(&born).await), Recorded::Known(ending));
    assert_eq!(outstanding(ledger, &mine).await, 2);
    let seen = answered(ledger.intent(&mine.id).await).expect("it is stored");
    assert_eq!(seen.deadline, mine.deadline);
    fits(ledger, &mine, 4, 1).await;
}

/// The ledger refuses to record more machines than were reserved, or a machine under an unknown
/// intent.
pub async fn no_more_machines_are_recorded_than_were_reserved<H: Harness<Port: Ledger>>(
    harness: H,
) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 2, now.after(HOUR));
    let unknown = intent("unknown", 1, now.after(HOUR));
    reserve(ledger, &mine).await;
    let born: Vec<_> = (0..8).map(|number| newborn(&format!("i-{number}"), &mine, now)).collect();
    let handles: Vec<_> = born.iter().map(|_| harness.another_process()).collect();
    let writes = handles.iter().zip(&born).map(|(ledger, born)| ledger.record(born));
    let answers: Vec<_> = join_all(writes).await.into_iter().map(won).collect();
    let stored = answers.iter().filter(|answer| matches!(answer, Recorded::Stored(_))).count();
    let refused = answers.iter().filter(|answer| **answer == Recorded::Refused).count();
    assert_eq!((stored, refused), (2, 6), "{answers:?}");
    assert_eq!(won(ledger.record(&newborn("i-9", &unknown, now)).await), Recorded::Refused);
    assert_eq!(outstanding(ledger, &mine).await, 0);
    fits(ledger, &mine, 4, 2).await;
}

/// Once the outstanding machines were given back, no more machines are recorded under the intent.
pub async fn nothing_is_recorded_after_giving_back<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = Intent { owner: job("j-1"), ..intent("mine", 2, now.after(HOUR)) };
    reserve(ledger, &mine).await;
    record(ledger, &newborn("i-1", &mine, now)).await;
    let seen = answered(ledger.intent(&mine.id).await).expect("it is stored");
    assert_eq!(seen.owner, mine.owner);
    won(ledger.give_back(&seen).await);
    lost(ledger.give_back(&seen).await);
    let late = newborn("i-2", &mine, now);
    assert_eq!(won(ledger.record(&late).await), Recorded::Refused);
    assert_eq!(answered(ledger.read(&late.id).await), None);
    assert_eq!(
        outstanding(ledger, &mine).await,
        0,
        "the intent is stored, with nothing outstanding"
    );
}

/// Giving back frees exactly the machines that never came.
pub async fn giving_back_frees_machines_that_never_came<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 5, now.after(HOUR));
    reserve(ledger, &mine).await;
    let stale = answered(ledger.intent(&mine.id).await).expect("it is stored");
    record(ledger, &newborn("i-1", &mine, now)).await;
    record(ledger, &newborn("i-2", &mine, now)).await;
    lost(ledger.give_back(&stale).await);
    fits(ledger, &mine, 6, 1).await;
    let seen = answered(ledger.intent(&mine.id).await).expect("it is stored");
    let answer_lost = harness.lose_next_answer();
    landed(ledger.give_back(&seen).await, answer_lost);
    fits(ledger, &mine, 7, 5).await;
}

/// One process records a late machine while another gives its intent back: one of them wins, and
/// the count is right either way.
pub async fn recording_and_giving_back_do_not_both_happen<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let other = harness.another_process();
    for round in 0..H::ROUNDS.min(50) {
        let mine = intent(&format!("mine-{round}"), 1, now.after(HOUR));
        reserve(ledger, &mine).await;
        let seen = answered(ledger.intent(&mine.id).await).expect("it is stored");
        let born = newborn(&format!("i-{round}"), &mine, now);
        let (recorded, back) = join(ledger.record(&born), other.give_back(&seen)).await;
        match (won(recorded), answered(back)) {
            (Recorded::Stored(_), Written::Lost) | (Recorded::Refused, Written::Won(())) => {}
            both => panic!("round {round}: {both:?}"),
        }
        assert_eq!(outstanding(ledger, &mine).await, 0, "round {round}");
    }
}

/// A burial frees the machine's capacity, once, and leaves a tombstone.
pub async fn a_burial_frees_its_place<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 2, now.after(HOUR));
    reserve(ledger, &mine).await;
    record(ledger, &newborn("i-1", &mine, now)).await;
    let created = record(ledger, &newborn("i-2", &mine, now)).await;
    let ending = step(ledger, &created, &condemned(now)).await;
    fits(ledger, &mine, 2, 0).await;
    let answer_lost = harness.lose_next_answer();
    landed(ledger.bury(&ending, &moved(&ending, &gone(now))).await, answer_lost);
    fits(ledger, &mine, 3, 2).await;
    let tombstone = stored(ledger, &created.id).await;
    assert!(!tombstone.state.is_live());
    let again = won(ledger.record(&newborn("i-2", &mine, now)).await);
    assert_eq!(again, Recorded::Known(tombstone), "a buried machine is not recorded again");
}

/// A burial over a stale revision changes nothing; of many burials at once, one frees capacity for
/// one machine.
pub async fn a_burial_that_lost_frees_nothing<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    let mine = intent("mine", 3, now.after(HOUR));
    reserve(ledger, &mine).await;
    let created = record(ledger, &newborn("i-1", &mine, now)).await;
    let ending = step(ledger, &created, &condemned(now)).await;
    let tombstone = moved(&ending, &gone(now));
    lost(ledger.bury(&created, &tombstone).await);
    fits(ledger, &mine, 3, 0).await;
    let handles: Vec<_> = (0..8).map(|_| harness.another_process()).collect();
    let burials = handles.iter().map(|ledger| ledger.bury(&ending, &tombstone));
    assert_eq!(winners(join_all(burials).await).len(), 1);
    fits(ledger, &mine, 4, 2).await;
}

/// The machines that count under the stack, two classes, a pool, an unknown class and an unknown
/// pool.
async fn held(ledger: &impl Ledger) -> [u32; 6] {
    let class = |name: &str| Scope::Class(ClassName::new(name));
    let pool = |name: &str| Scope::Pool(PoolName::new(name));
    let all =
        [Scope::Stack, class("large"), class("small"), pool("linux"), class("none"), pool("none")];
    let used = answered(ledger.used(&all).await);
    used.try_into().expect("one answer for each")
}

/// A machine counts under its stack, its class and its pool, from its reservation until it is
/// buried or given back; recording it changes nothing.
pub async fn scopes_report_the_machines_under_them<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    assert_eq!(held(ledger).await, [0; 6]);
    assert_eq!(answered(ledger.used(&[]).await), [0; 0]);
    let pooled = intent("pooled", 3, now.after(HOUR));
    let small = ClassName::new("small");
    let single = Intent { class: small, pool: None, ..intent("single", 2, now.after(HOUR)) };
    reserve(ledger, &pooled).await;
    reserve(&harness.another_process(), &single).await;
    assert_eq!(held(ledger).await, [5, 3, 2, 3, 0, 0]);
    let created = record(ledger, &newborn("i-1", &pooled, now)).await;
    record(ledger, &newborn("i-2", &single, now)).await;
    let ending = step(ledger, &created, &condemned(now)).await;
    assert_eq!(held(ledger).await, [5, 3, 2, 3, 0, 0], "a terminating machine still counts");
    won(ledger.bury(&ending, &moved(&ending, &gone(now))).await);
    assert_eq!(held(&harness.another_process()).await, [4, 2, 2, 2, 0, 0]);
    for (given_up, left) in [(&pooled, [2, 0, 2, 0, 0, 0]), (&single, [1, 0, 1, 0, 0, 0])] {
        let seen = answered(ledger.intent(&given_up.id).await).expect("it is stored");
        won(ledger.give_back(&seen).await);
        assert_eq!(held(ledger).await, left);
    }
    let twice = answered(ledger.used(&[Scope::Stack, Scope::Stack]).await);
    assert_eq!(twice, [1, 1], "a repeated scope has two answers");
}

/// A reservation that fits by this count is refused only if another process reserved in between.
pub async fn ceilings_compare_the_count_that_a_scope_reports<H: Harness<Port: Ledger>>(harness: H) {
    let (ledger, now) = (harness.port(), harness.now());
    reserve(ledger, &intent("others", 3, now.after(HOUR))).await;
    let [used, ..] = held(ledger).await;
    fits(ledger, &intent("mine", 1, now.after(HOUR)), used + 2, 2).await;
    let greedy = intent("greedy", 3, now.after(HOUR));
    match won(ledger.reserve(&greedy, &stack(used + 2)).await) {
        Reserved::Short(short) => assert_eq!(short.used, used),
        other => panic!("a reservation beyond the capacity was {other:?}"),
    }
    assert_eq!(held(ledger).await[0], used, "a refused reservation is not counted");
}
