//! The contract of the `Mailbox` port.
//!
//! Not here: an agent's response to an order, or judging exposure; those are the core's.

use std::time::Duration;

use bullpen_core::ids::{Generation, JobId, MailboxKey, Repository, RunnerName};
use bullpen_core::instance::Owner;
use bullpen_core::limits::{
    REPORT_BOOT_BYTES_MAX, REPORT_BYTES_MAX, REPORT_PART_BYTES_MAX, REPORT_WORD_BYTES_MAX,
    SIGNAL_DETAIL_BYTES_MAX, UNREADABLE_CHARS_MAX,
};
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Beat, Credential, Inbox, Order, Report, ReportRead, Secret, Signal,
    SignalKind, Withdrawal, WithdrawalMode,
};
use bullpen_core::ports::{Consistency, Mailbox, Written};
use bullpen_core::request::stranger::RanJob;
use bullpen_core::time::Timestamp;
use futures_util::future::{join, join_all};

use super::{Harness, answered, landed, lost, while_this_happens, while_time_passes, won};
use crate::model::mailbox::Forgery;

/// A harness with an intruder who has root on the machines.
pub trait MailboxHarness: Harness<Port: Mailbox> {
    /// Writes a forgery over parts of a report, as a program with the machine's credentials can.
    fn forge_report(&self, key: &MailboxKey, forged: &Forgery) -> impl Future<Output = ()>;
}

/// One test per case of the mailbox's contract.
#[macro_export]
macro_rules! mailbox_contract {
    ($harness:ty) => {
        $crate::contract_cases!(
            $harness,
            mailbox,
            [
                an_order_is_read_back_as_it_was_posted,
                a_batch_of_orders_is_accepted_one_by_one,
                only_a_newer_order_is_stored,
                a_drain_becomes_a_stop_and_never_the_reverse,
                a_withdrawal_never_erases_the_last_assignment,
                a_stalled_claimer_cannot_overwrite_a_newer_assignment,
                of_many_orders_at_once_the_newest_remains,
                an_order_whose_answer_was_lost_is_settled_by_reading,
                redacting_removes_only_its_own_credential,
                a_redacted_assignment_is_not_posted_again,
                eventual_reads_catch_up,
                signals_do_not_overwrite_each_other,
                a_signal_of_an_earlier_generation_is_dropped,
                an_older_beat_is_dropped,
                beats_and_signals_leave_each_other_alone,
                reports_come_in_the_order_they_were_asked_for,
                what_is_no_report_is_unreadable_for_its_own_machine_alone,
                a_hostile_machine_reports_only_for_itself,
                an_agent_reports_on_beside_a_forgery,
                mailboxes_are_apart,
                a_wait_ends_when_an_order_comes,
                a_wait_ends_when_a_report_comes,
                a_wait_ends_by_itself,
            ]
        );
    };
}

fn key() -> MailboxKey {
    MailboxKey::new("AROA:i-1")
}

fn start() -> Timestamp {
    "2026-01-05T08:00:00.125Z".parse().expect("it is RFC 3339")
}

fn assignment(generation: u64) -> Assignment {
    Assignment {
        generation: Generation(generation),
        owner: Owner::Job(JobId::new(format!("j-{generation}"))),
        runner: RunnerName::new(format!("stack-j-{generation}-1")),
        label: "warm ☃ \"quoted\"".into(),
        credential: Some(Credential::Jit(Secret::new("not a real one"))),
        register_by: Some(start()),
        hard_cap: start().after(Duration::from_secs(86_400)),
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    }
}

fn assigned(generation: u64) -> Order {
    Order::Assigned(assignment(generation))
}

fn withdrawn(generation: u64, mode: WithdrawalMode) -> Order {
    Order::Withdrawn(Withdrawal {
        generation: Generation(generation),
        mode,
        at: start(),
        idle_deadline: start().after(Duration::from_secs(420)),
        removal_token: Some(Secret::new("not a real one either")),
    })
}

fn beat(seq: u64) -> Beat {
    let at = start().after(Duration::from_secs(seq));
    Beat { seq, at, phase: AgentPhase::Waiting, boot: "boot-1".into() }
}

fn signal(generation: u64, detail: &str) -> Signal {
    let owner = Some(Owner::Job(JobId::new("j-1")));
    let (generation, detail) = (Generation(generation), detail.into());
    Signal { generation, owner, at: start(), detail, ran: None }
}

async fn inbox(mailbox: &impl Mailbox) -> Option<Inbox> {
    answered(mailbox.inbox(&key(), Consistency::Consistent).await)
}

async fn reports_of(mailbox: &impl Mailbox, keys: &[MailboxKey]) -> Vec<Option<Report>> {
    let found = answered(mailbox.reports(keys).await).into_iter();
    found
        .map(|found| match found {
            ReportRead::Absent => None,
            ReportRead::Read(report) => Some(report),
            ReportRead::Unreadable(why) => panic!("an agent's own report is unreadable: {why}"),
        })
        .collect()
}

async fn report(mailbox: &impl Mailbox) -> Report {
    let mut reports = reports_of(mailbox, &[key()]).await;
    reports.pop().flatten().expect("the report exists")
}

/// Orders of one batch are accepted one by one, and answered in their order.
pub async fn a_batch_of_orders_is_accepted_one_by_one<H: Harness<Port: Mailbox>>(harness: H) {
    const AGENTS: u64 = 60;
    let mailbox = harness.port();
    let keys: Vec<_> = (0..AGENTS).map(|n| MailboxKey::new(format!("agent-{n:02}"))).collect();
    for key in keys.iter().step_by(3) {
        won(harness.another_process().post(key, &withdrawn(2, WithdrawalMode::Drain)).await);
    }
    let orders: Vec<_> = keys.iter().map(|key| (key.clone(), assigned(1))).collect();
    let answers = mailbox.post_all(&orders).await;
    assert_eq!(answers.len(), orders.len());
    for (number, (answer, (key, order))) in answers.into_iter().zip(&orders).enumerate() {
        let inbox =
            answered(mailbox.inbox(key, Consistency::Consistent).await).expect("the inbox exists");
        if number % 3 == 0 {
            lost(answer);
            assert_eq!(inbox.order, withdrawn(2, WithdrawalMode::Drain));
        } else {
            assert_eq!(won(answer), inbox);
            assert_eq!(inbox.order, *order);
        }
    }
    assert!(mailbox.post_all(&[]).await.is_empty());
}

/// An order and the last assigned generation are read back complete by every process.
pub async fn an_order_is_read_back_as_it_was_posted<H: Harness<Port: Mailbox>>(harness: H) {
    let other = harness.another_process();
    assert_eq!(inbox(&other).await, None);
    for (order, remembers) in [
        (assigned(1), 1),
        (withdrawn(2, WithdrawalMode::Drain), 1),
        (withdrawn(2, WithdrawalMode::Stop), 1),
    ] {
        let stored = won(harness.port().post(&key(), &order).await);
        assert_eq!(stored, Inbox { assigned: Generation(remembers), order });
        assert_eq!(inbox(&other).await, Some(stored));
    }
}

/// An equal or older order loses and changes nothing.
pub async fn only_a_newer_order_is_stored<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    let stored = won(mailbox.post(&key(), &assigned(5)).await);
    for order in [
        assigned(5),
        assigned(4),
        withdrawn(4, WithdrawalMode::Stop),
        withdrawn(1, WithdrawalMode::Drain),
    ] {
        lost(mailbox.post(&key(), &order).await);
    }
    assert_eq!(inbox(mailbox).await, Some(stored));
    won(mailbox.post(&key(), &assigned(6)).await);
    // Generations may have gaps, and are compared as numbers: ten is more than nine.
    won(mailbox.post(&key(), &assigned(9)).await);
    won(mailbox.post(&key(), &assigned(10)).await);
}

/// Within one generation an order advances only from assignment to drain to stop.
pub async fn a_drain_becomes_a_stop_and_never_the_reverse<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    won(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Drain)).await);
    lost(mailbox.post(&key(), &assigned(3)).await);
    lost(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Drain)).await);
    let stop = won(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Stop)).await);
    lost(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Drain)).await);
    lost(mailbox.post(&key(), &withdrawn(3, WithdrawalMode::Stop)).await);
    assert_eq!(inbox(mailbox).await, Some(stop));
}

/// The inbox remembers the last assignment over any number of withdrawals.
pub async fn a_withdrawal_never_erases_the_last_assignment<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    let first = won(mailbox.post(&key(), &withdrawn(1, WithdrawalMode::Drain)).await);
    assert_eq!(first.assigned, Generation(0), "no generation was assigned");
    won(mailbox.post(&key(), &assigned(2)).await);
    for (generation, mode) in [
        (2, WithdrawalMode::Drain),
        (2, WithdrawalMode::Stop),
        (4, WithdrawalMode::Drain),
        (7, WithdrawalMode::Stop),
    ] {
        let stored = won(mailbox.post(&key(), &withdrawn(generation, mode)).await);
        assert_eq!(stored.assigned, Generation(2), "after {generation}, {mode:?}");
    }
    assert_eq!(inbox(mailbox).await.map(|inbox| inbox.assigned), Some(Generation(2)));
}

/// Fencing reaches the agent: a stalled claimer cannot put its assignment over a newer one.
pub async fn a_stalled_claimer_cannot_overwrite_a_newer_assignment<H: Harness<Port: Mailbox>>(
    harness: H,
) {
    let (stalled, others) = (harness.port(), harness.another_process());
    won(others.post(&key(), &withdrawn(3, WithdrawalMode::Drain)).await);
    let newer = won(others.post(&key(), &assigned(4)).await);
    lost(stalled.post(&key(), &assigned(2)).await);
    lost(stalled.post(&key(), &withdrawn(3, WithdrawalMode::Stop)).await);
    assert_eq!(inbox(stalled).await, Some(newer));
}

/// Of orders posted at once the newest remains, and each winner's answer was true.
pub async fn of_many_orders_at_once_the_newest_remains<H: Harness<Port: Mailbox>>(harness: H) {
    let orders: Vec<Order> = (1..=24_u64)
        .map(|number| match number * 7 % 24 + 1 {
            generation if number % 2 == 0 => assigned(generation),
            generation => withdrawn(generation, WithdrawalMode::Drain),
        })
        .collect();
    let newest = orders.iter().max_by_key(|order| order.rank()).expect("the list is not empty");
    let handles: Vec<_> = orders.iter().map(|_| harness.another_process()).collect();
    let key = key();
    let posts = handles.iter().zip(&orders).map(|(mailbox, order)| mailbox.post(&key, order));
    let answers = join_all(posts).await;
    let stored = inbox(harness.port()).await.expect("an order was stored");
    assert_eq!(stored.order, *newest);
    let mut assigned = Generation(0);
    for (order, answer) in orders.iter().zip(answers) {
        if let (Written::Won(_), Order::Assigned(assignment)) = (answered(answer), order) {
            assigned = assigned.max(assignment.generation);
        }
    }
    assert_eq!(stored.assigned, assigned, "the inbox remembers an assignment that won");
}

/// An order whose answer was lost is stored once.
pub async fn an_order_whose_answer_was_lost_is_settled_by_reading<H: Harness<Port: Mailbox>>(
    harness: H,
) {
    let answer_lost = harness.lose_next_answer();
    landed(harness.port().post(&key(), &assigned(1)).await, answer_lost);
    assert_eq!(inbox(harness.port()).await.map(|inbox| inbox.order), Some(assigned(1)));
    lost(harness.port().post(&key(), &assigned(1)).await);
}

/// Only its own generation removes the credential of the latest assignment.
pub async fn redacting_removes_only_its_own_credential<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    answered(mailbox.redact(&key(), Generation(1)).await);
    assert_eq!(inbox(mailbox).await, None, "redacting stores no inbox");
    let stored = won(mailbox.post(&key(), &assigned(2)).await);
    for other in [1, 3] {
        answered(mailbox.redact(&key(), Generation(other)).await);
    }
    assert_eq!(inbox(mailbox).await, Some(stored));
    for _ in 0..2 {
        answered(mailbox.redact(&key(), Generation(2)).await);
        let order = Order::Assigned(Assignment { credential: None, ..assignment(2) });
        assert_eq!(inbox(mailbox).await, Some(Inbox { assigned: Generation(2), order }));
    }
    let withdrawn = won(mailbox.post(&key(), &withdrawn(2, WithdrawalMode::Drain)).await);
    answered(mailbox.redact(&key(), Generation(2)).await);
    assert_eq!(inbox(mailbox).await, Some(withdrawn), "a withdrawal keeps its token");
}

/// A redacted assignment keeps its rank: repeating the post cannot restore the credential.
pub async fn a_redacted_assignment_is_not_posted_again<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    won(mailbox.post(&key(), &assigned(2)).await);
    answered(mailbox.redact(&key(), Generation(2)).await);
    lost(mailbox.post(&key(), &assigned(2)).await);
    let stored = inbox(mailbox).await.expect("the inbox exists");
    assert!(matches!(stored.order, Order::Assigned(Assignment { credential: None, .. })));
}

/// An eventual read shows an earlier value, and in the end the last one.
pub async fn eventual_reads_catch_up<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    for generation in 1..=10_u64 {
        won(mailbox.post(&key(), &assigned(generation)).await);
        let seen = answered(mailbox.inbox(&key(), Consistency::Eventual).await);
        let seen = seen.map_or(0, |inbox| inbox.assigned.0);
        assert!(seen <= generation, "{seen} was never posted");
        assert!(H::WEAK || seen == generation);
        harness.pass(Duration::from_millis(200)).await;
    }
    harness.settle().await;
    let seen = answered(mailbox.inbox(&key(), Consistency::Eventual).await);
    assert_eq!(seen, inbox(mailbox).await);
    assert_eq!(seen.map(|inbox| inbox.assigned), Some(Generation(10)));
}

const KINDS: [SignalKind; 9] = [
    SignalKind::WarmUpOk,
    SignalKind::WarmUpFailed,
    SignalKind::Acknowledged,
    SignalKind::Registered,
    SignalKind::RegistrationFailed,
    SignalKind::JobStarted,
    SignalKind::ListenerEnded,
    SignalKind::Removed,
    SignalKind::Interrupted,
];

/// Signals of all kinds that are written at once are all stored.
pub async fn signals_do_not_overwrite_each_other<H: Harness<Port: Mailbox>>(harness: H) {
    let handles: Vec<_> = KINDS.iter().map(|_| harness.another_process()).collect();
    for round in 1..=5 {
        let key = key();
        let signals: Vec<_> =
            KINDS.iter().map(|kind| signal(round, &format!("{kind:?}"))).collect();
        let writes = (handles.iter().zip(KINDS).zip(&signals))
            .map(|((mailbox, kind), signal)| mailbox.signal(&key, kind, signal));
        join_all(writes).await.into_iter().for_each(answered);
        let stored = report(harness.port()).await;
        for (kind, signal) in KINDS.into_iter().zip(&signals) {
            assert_eq!(stored.signals.get(&kind), Some(signal), "round {round}");
        }
    }
}

/// A signal about an earlier owner never hides a signal about a later owner.
pub async fn a_signal_of_an_earlier_generation_is_dropped<H: Harness<Port: Mailbox>>(harness: H) {
    let (mailbox, kind) = (harness.port(), SignalKind::Removed);
    answered(mailbox.signal(&key(), kind, &signal(10, "later")).await);
    answered(mailbox.signal(&key(), kind, &signal(9, "earlier")).await);
    assert_eq!(report(mailbox).await.signals.get(&kind), Some(&signal(10, "later")));
    // A repeat with the same generation replaces the signal.
    answered(mailbox.signal(&key(), kind, &signal(10, "more")).await);
    assert_eq!(report(mailbox).await.signals.get(&kind), Some(&signal(10, "more")));
    // A signal of another kind is stored independently.
    answered(mailbox.signal(&key(), SignalKind::WarmUpOk, &signal(0, "warm")).await);
    assert_eq!(report(mailbox).await.removed(), Generation(10));
    assert!(report(mailbox).await.signals.contains_key(&SignalKind::WarmUpOk));
}

/// A beat that arrives after a later beat is dropped.
pub async fn an_older_beat_is_dropped<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    for (sent, stored) in [(1, 1), (10, 10), (9, 10), (2, 10), (11, 11)] {
        answered(mailbox.beat(&key(), &beat(sent)).await);
        assert_eq!(report(mailbox).await.beat, Some(beat(stored)), "after beat {sent}");
    }
}

/// Beats and signals written at once are all stored.
pub async fn beats_and_signals_leave_each_other_alone<H: Harness<Port: Mailbox>>(harness: H) {
    let (mailbox, other) = (harness.port(), harness.another_process());
    for round in 1..=20 {
        let (key, beat) = (key(), beat(round));
        let signal = signal(round, "");
        let writes =
            join(mailbox.beat(&key, &beat), other.signal(&key, SignalKind::JobStarted, &signal));
        let (first, second) = writes.await;
        answered(first);
        answered(second);
        let stored = report(mailbox).await;
        assert_eq!(stored.beat, Some(beat));
        assert_eq!(stored.signals.get(&SignalKind::JobStarted), Some(&signal));
    }
}

/// One answer per key, in the keys' order; `None` without a report.
pub async fn reports_come_in_the_order_they_were_asked_for<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    let keys: Vec<_> =
        (0..120_u64).map(|number| MailboxKey::new(format!("key-{number}"))).collect();
    for (seq, key) in (0..).zip(&keys).filter(|(seq, _)| seq % 3 != 0) {
        answered(mailbox.beat(key, &beat(seq)).await);
    }
    // An order creates no report.
    won(mailbox.post(&keys[0], &assigned(1)).await);
    let asked: Vec<_> = keys.iter().rev().cloned().collect();
    let reports = reports_of(mailbox, &asked).await;
    let seqs: Vec<_> = reports
        .iter()
        .map(|report| report.as_ref().and_then(|report| Some(report.beat.as_ref()?.seq)))
        .collect();
    let expected: Vec<_> = (0..120).rev().map(|seq| (seq % 3 != 0).then_some(seq)).collect();
    assert_eq!(seqs, expected);
    assert_eq!(answered(mailbox.reports(&[]).await), []);
}

fn forged(beat: Option<&str>, signals: &[(&str, &str)]) -> Forgery {
    let owned = |(kind, body): &(&str, &str)| ((*kind).to_owned(), (*body).to_owned());
    let signals = signals.iter().map(owned).collect();
    Forgery { beat: beat.map(str::to_owned), signals, ill_typed: false }
}

fn signalled(kind: SignalKind, signal: Signal) -> Report {
    Report { beat: None, signals: [(kind, signal)].into() }
}

/// Reports that no agent of ours writes, each with a name.
fn forgeries() -> Vec<(&'static str, Forgery)> {
    let long = |bytes: usize| "x".repeat(bytes);
    let detail = |bytes| signalled(SignalKind::Registered, signal(1, &long(bytes)));
    let boot = long(REPORT_BOOT_BYTES_MAX + 1);
    let strange = Report { beat: Some(Beat { boot, ..beat(1) }), ..Report::default() };
    let ran = |repository: &str, job: &str, event: &str| {
        let (repository, job, event) = (Repository::new(repository), job.into(), event.into());
        let ran = Some(RanJob { repository, run: 1, attempt: 1, job, event });
        Forgery::of(&signalled(SignalKind::JobStarted, Signal { ran, ..signal(1, "") }))
    };
    let word = long(REPORT_WORD_BYTES_MAX + 1);
    // Each part fits, and all parts together do not.
    let padding = " ".repeat(REPORT_PART_BYTES_MAX / 2);
    let padded = |kind: &SignalKind| {
        let Forgery { mut signals, .. } = Forgery::of(&signalled(*kind, signal(1, "")));
        signals[0].1.push_str(&padding);
        signals.remove(0)
    };
    let many = Forgery { signals: KINDS.iter().map(padded).collect(), ..Forgery::default() };
    assert!(KINDS.len() * padding.len() > REPORT_BYTES_MAX);
    vec![
        ("garbage", forged(None, &[("UD_OK", "\u{1b}[2Jnot JSON")])),
        ("a beat of garbage", forged(Some("{"), &[])),
        ("an empty beat", forged(Some(""), &[])),
        ("a beat of another shape", forged(Some(r#"{"seq":-1,"at":7,"phase":"sleeping"}"#), &[])),
        ("a generation below none", forged(None, &[("UD_OK", r#"{"generation":-1}"#)])),
        ("an unknown kind", forged(None, &[("UD_\u{202e}ROOT", "{}")])),
        ("a detail that is too long", Forgery::of(&detail(SIGNAL_DETAIL_BYTES_MAX + 1))),
        ("300 KB", Forgery::of(&detail(300 * 1024))),
        ("a boot that is too long", Forgery::of(&strange)),
        ("a repository that is too long", ran(&word, "test", "push")),
        ("a job that is too long", ran("octo/main", &word, "push")),
        ("an event that is too long", ran("octo/main", "test", &word)),
        ("too much together", many),
        ("no text", Forgery { ill_typed: true, ..Forgery::default() }),
    ]
}

/// An unreadable report is distinct from an absent one, has a short reason, and affects no other
/// machine's report.
pub async fn what_is_no_report_is_unreadable_for_its_own_machine_alone<H: MailboxHarness>(
    harness: H,
) {
    let mailbox = harness.port();
    let forgeries = forgeries();
    let name = |what: &str, number: usize| MailboxKey::new(format!("{what}-{number:02}"));
    let mut asked = vec![MailboxKey::new("absent")];
    for (number, (_, forgery)) in forgeries.iter().enumerate() {
        let (hostile, honest) = (name("hostile", number), name("honest", number));
        answered(mailbox.beat(&hostile, &beat(1)).await);
        harness.forge_report(&hostile, forgery).await;
        answered(mailbox.beat(&honest, &beat(2)).await);
        asked.extend([hostile, honest]);
    }
    let found = answered(mailbox.reports(&asked).await);
    assert_eq!(found.len(), asked.len());
    assert_eq!(found[0], ReportRead::Absent);
    for (pair, (what, _)) in found[1..].chunks(2).zip(&forgeries) {
        let ReportRead::Unreadable(why) = &pair[0] else { panic!("{what} was read: {pair:?}") };
        let why = why.to_string();
        assert!((1..=UNREADABLE_CHARS_MAX).contains(&why.chars().count()), "{what}: {why}");
        assert!(!why.chars().any(|c| c.is_control() || c == '\u{202e}'), "{what}: {why:?}");
        let honest = ReportRead::Read(Report { beat: Some(beat(2)), ..Report::default() });
        assert_eq!(pair[1], honest, "beside {what}");
    }
}

/// A well-formed report is read, even if unlikely: the port judges no generation and no clock.
pub async fn a_hostile_machine_reports_only_for_itself<H: MailboxHarness>(harness: H) {
    let mailbox = harness.port();
    let other = MailboxKey::new("AROA:i-12");
    answered(mailbox.beat(&other, &beat(1)).await);
    let at = "9999-12-30T00:00:00Z".parse().expect("it is RFC 3339");
    let said = Signal { at, ..signal(u64::MAX, "AROA:i-12") };
    let lies = Report {
        beat: Some(Beat { seq: u64::MAX, at, phase: AgentPhase::Busy, boot: "b".to_owned() }),
        ..signalled(SignalKind::Removed, said)
    };
    harness.forge_report(&key(), &Forgery::of(&lies)).await;
    let found = reports_of(mailbox, &[key(), other]).await;
    assert_eq!(found[0], Some(lies));
    assert_eq!(found[1], Some(Report { beat: Some(beat(1)), ..Report::default() }));
}

/// With any forged report an agent's own calls are answered, and so are orders to it.
pub async fn an_agent_reports_on_beside_a_forgery<H: MailboxHarness>(harness: H) {
    let mailbox = harness.port();
    for (number, (what, forgery)) in (0..).zip(forgeries()) {
        harness.forge_report(&key(), &forgery).await;
        for call in [
            mailbox.beat(&key(), &beat(number)).await,
            mailbox.signal(&key(), SignalKind::Removed, &signal(number, "")).await,
        ] {
            assert!(call.is_ok(), "after {what}: {call:?}");
        }
        won(mailbox.post(&key(), &assigned(number + 1)).await);
        assert_eq!(answered(mailbox.reports(&[key()]).await).len(), 1, "{what}");
    }
}

/// A write under one key is visible under no other key.
pub async fn mailboxes_are_apart<H: Harness<Port: Mailbox>>(harness: H) {
    let mailbox = harness.port();
    won(mailbox.post(&key(), &assigned(7)).await);
    answered(mailbox.beat(&key(), &beat(7)).await);
    let other = MailboxKey::new("AROA:i-12");
    assert_eq!(answered(mailbox.inbox(&other, Consistency::Consistent).await), None);
    let found = answered(mailbox.reports(std::slice::from_ref(&other)).await);
    assert_eq!(found, [ReportRead::Absent]);
    won(mailbox.post(&other, &assigned(1)).await);
}

const LONG: Duration = Duration::from_secs(60);

/// The length of a wait that another process's change should end after two seconds.
async fn waited<H: Harness<Port: Mailbox>>(
    harness: &H,
    change: impl Future<Output = ()>,
) -> Duration {
    let (key, began) = (key(), harness.now());
    let waiting = harness.port().wait(&key, LONG);
    let changing = async {
        harness.pass(Duration::from_secs(2)).await;
        change.await;
    };
    let done = while_this_happens(harness, LONG * 2, waiting, changing).await;
    assert!(done.is_some(), "a wait ends by itself");
    harness.now().since(began)
}

/// A waiting agent sees its order at once, where the adapter can wake it.
pub async fn a_wait_ends_when_an_order_comes<H: Harness<Port: Mailbox>>(harness: H) {
    let other = harness.another_process();
    let change = async { drop(won(other.post(&key(), &assigned(1)).await)) };
    let waited = waited(&harness, change).await;
    assert!(H::WEAK || waited < LONG / 2, "the wait slept on for {waited:?}");
}

/// A process that waits for an agent sees its report at once, where the adapter can wake it.
pub async fn a_wait_ends_when_a_report_comes<H: Harness<Port: Mailbox>>(harness: H) {
    let other = harness.another_process();
    let change = async {
        answered(other.signal(&key(), SignalKind::Registered, &signal(1, "")).await);
    };
    let waited = waited(&harness, change).await;
    assert!(H::WEAK || waited < LONG / 2, "the wait slept on for {waited:?}");
}

/// Without a change a wait ends after its time.
pub async fn a_wait_ends_by_itself<H: Harness<Port: Mailbox>>(harness: H) {
    let (key, wait) = (key(), Duration::from_secs(3));
    let done = while_time_passes(&harness, wait * 3, harness.port().wait(&key, wait)).await;
    assert!(done.is_some(), "the wait never ended");
}
