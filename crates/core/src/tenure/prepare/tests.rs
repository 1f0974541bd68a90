//! Tests of the beginning of a tenure: every answer to every effect, and each limit from both sides.
//!
//! Not here: interleavings with other processes (`bullpen_sim::explore`, and the seeds).

use super::*;
use crate::claim::CheckFailure as Failure;
use crate::instance::{Authority, Tier};
use crate::samples::{
    GENERATION, LIMITS, at, claimed, created, idle, job_owner, record, releasing, request_owner,
    running,
};
use crate::tenure::runner_name;

const TIERS: [Tier; 3] = [Tier::Hot, Tier::Released, Tier::Stopped];

fn owners() -> [Owner; 2] {
    [request_owner(), job_owner()]
}

/// A record on which no job ran yet.
fn fresh(state: State) -> Record {
    Record { uses: 0, ..record(state) }
}

/// An attempt and its clock.
struct Attempt {
    prepare: Prepare,
    owner: Owner,
    now: Timestamp,
}

impl Attempt {
    fn of(record: Record) -> Self {
        let owner = record.state.owner().unwrap().clone();
        let won = Won::held(record, &owner).unwrap();
        Self { prepare: Prepare::new(won, at(0), &LIMITS), owner, now: at(0) }
    }

    fn claimed(owner: Owner, tier: Tier) -> Self {
        Self::of(fresh(claimed(owner, tier)))
    }

    fn on(&mut self, input: PrepareInput) -> PrepareEffect {
        self.prepare.on(input, self.now, &LIMITS)
    }

    /// Takes it to its watch.
    fn watched(mut self) -> Self {
        assert!(matches!(self.on(PrepareInput::Begun), PrepareEffect::Assign { .. }));
        let mut effect = self.on(PrepareInput::Assigned);
        if effect == PrepareEffect::Start {
            effect = self.on(PrepareInput::Started(Ok(StartOutcome::Starting)));
        }
        assert!(matches!(effect, PrepareEffect::Watch(_)), "{effect:?}");
        self
    }

    /// Takes it to the deletion of its runner after this failure.
    fn withdrawn(mut self, failure: Failure) -> Self {
        assert_eq!(self.fails(failure), PrepareEffect::ReadRecord);
        self.drained(failure)
    }

    /// Fails the check. No other agent is silent.
    fn fails(&mut self, failure: Failure) -> PrepareEffect {
        match self.on(PrepareInput::Checked(Check::Failed(failure))) {
            PrepareEffect::CompareSilence => self.on(PrepareInput::Compared(Silence::Own)),
            effect => effect,
        }
    }

    /// GitHub's answer about its runner. No other agent is silent.
    fn deleted(&mut self, deletion: Deletion) -> PrepareEffect {
        match self.on(PrepareInput::Deleted(deletion)) {
            PrepareEffect::CompareSilence => self.on(PrepareInput::Compared(Silence::Own)),
            effect => effect,
        }
    }

    fn drained(mut self, failure: Failure) -> Self {
        let ours = record(claimed(self.owner.clone(), Tier::Hot));
        assert_eq!(self.on(PrepareInput::Found(Some(ours))), PrepareEffect::Withdraw(failure));
        assert_eq!(self.on(PrepareInput::Withdrawn), PrepareEffect::DeleteRunner);
        self
    }

    fn by_owner(&self) -> Authority {
        Authority::Owner { owner: self.owner.clone(), generation: GENERATION }
    }

    /// The event that ends its machine.
    fn condemned(&self, why: EndReason) -> PrepareEffect {
        let authority = self.by_owner();
        PrepareEffect::Write(InstanceEvent::Condemned { authority, why, at: self.now })
    }

    /// The event that gives its machine back.
    fn given_back(&self) -> PrepareEffect {
        let (authority, cap) = (self.by_owner(), self.now.after(LIMITS.hard_cap));
        PrepareEffect::Write(InstanceEvent::Withdrawn { authority, warm: true, at: self.now, cap })
    }
}

fn down() -> String {
    String::from("GitHub is down")
}

#[test]
fn each_answer_that_went_well_leads_to_the_next_effect() {
    for owner in owners() {
        for tier in TIERS {
            let mut attempt = Attempt::claimed(owner.clone(), tier);
            let kind = if tier == Tier::Stopped { CheckKind::Started } else { CheckKind::Warm };
            let by = register_by(kind, at(0), &LIMITS);
            assert_eq!(attempt.on(PrepareInput::Begun), PrepareEffect::Assign { register_by: by });
            attempt.now = at(1);
            let mut effect = attempt.on(PrepareInput::Assigned);
            if tier == Tier::Stopped {
                assert_eq!(effect, PrepareEffect::Start);
                attempt.now = at(2);
                effect = attempt.on(PrepareInput::Started(Ok(StartOutcome::Starting)));
            }
            let since = attempt.now;
            let watch = ReportWatch { generation: GENERATION, since, kind, beat_seen: None };
            assert_eq!(effect, PrepareEffect::Watch(watch), "{tier:?}");
            assert_eq!(attempt.on(PrepareInput::Checked(Check::Passed)), PrepareEffect::Ready);
        }
    }
}

#[test]
fn a_created_machine_is_assigned_and_watched_and_never_started() {
    for owner in owners() {
        let mut attempt = Attempt::of(fresh(created(owner))).watched();
        assert_eq!(attempt.on(PrepareInput::Checked(Check::Passed)), PrepareEffect::Ready);
    }
}

#[test]
fn a_fenced_worker_leaves_the_machine_alone_at_every_step() {
    for tier in TIERS {
        let mut begun = Attempt::claimed(request_owner(), tier);
        assert_eq!(begun.on(PrepareInput::Fenced), PrepareEffect::TryAnother);
        let mut watched = Attempt::claimed(request_owner(), tier).watched();
        assert_eq!(watched.on(PrepareInput::Fenced), PrepareEffect::TryAnother);
        let mut failed = Attempt::claimed(request_owner(), tier).watched();
        failed.fails(Failure::Silent);
        assert_eq!(failed.on(PrepareInput::Fenced), PrepareEffect::TryAnother);
    }
}

#[test]
fn a_machine_that_the_cloud_did_not_start_goes_back_as_stopped_as_it_was() {
    for answer in [Ok(StartOutcome::NoCapacity), Err(Fault::Throttled)] {
        let mut attempt = Attempt::claimed(job_owner(), Tier::Stopped);
        attempt.on(PrepareInput::Begun);
        assert_eq!(attempt.on(PrepareInput::Assigned), PrepareEffect::Start);
        let effect = attempt.on(PrepareInput::Started(answer.clone()));
        assert_eq!(effect, attempt.given_back(), "{answer:?}");
        assert_eq!(attempt.on(PrepareInput::Written(true)), PrepareEffect::Return);
        assert_eq!(attempt.on(PrepareInput::Returned), PrepareEffect::TryAnother);
        let mut overtaken = Attempt::claimed(job_owner(), Tier::Stopped);
        overtaken.on(PrepareInput::Started(answer));
        assert_eq!(overtaken.on(PrepareInput::Written(false)), PrepareEffect::TryAnother);
    }
}

#[test]
fn a_start_without_an_answer_may_have_landed() {
    let mut attempt = Attempt::claimed(job_owner(), Tier::Stopped);
    let unanswered = PrepareInput::Started(Err(Fault::unavailable("timed out")));
    assert!(matches!(attempt.on(unanswered), PrepareEffect::Watch(_)));
}

#[test]
fn a_start_that_failed_ends_the_machine_without_waiting_for_its_agent() {
    let mut attempt = Attempt::claimed(request_owner(), Tier::Stopped);
    let failed = PrepareInput::Started(Ok(StartOutcome::Failed(Fault::NoCapacity)));
    assert_eq!(attempt.on(failed), PrepareEffect::ReadRecord);
    let mut attempt = attempt.drained(Failure::NotStarted);
    let ends = attempt.deleted(Deletion::NotFound);
    assert_eq!(ends, attempt.condemned(EndReason::FailedChecks), "it registers nothing later");
}

#[test]
fn a_cause_elsewhere_gives_the_machine_back_and_closes_the_attempt() {
    let elsewhere =
        [PrepareInput::Checked(Check::Systemic(down())), PrepareInput::Unanswered(down())];
    for input in elsewhere {
        for tier in TIERS {
            let mut attempt = Attempt::claimed(request_owner(), tier).watched();
            assert_eq!(attempt.on(input.clone()), attempt.given_back(), "{tier:?}");
            for is_written in [true, false] {
                let mut attempt = Attempt {
                    prepare: attempt.prepare.clone(),
                    owner: request_owner(),
                    now: at(0),
                };
                let closed = attempt.on(PrepareInput::Written(is_written));
                assert_eq!(closed, PrepareEffect::Close(down()));
            }
        }
    }
}

/// A job may have left something on the machine that reports this cause at every assignment; the
/// machine would be given back for ever.
#[test]
fn a_machine_that_jobs_ran_on_is_not_excused() {
    for (deletion, tier) in [(Deletion::Deleted, Tier::Hot), (Deletion::NotFound, Tier::Released)] {
        let mut used = record(claimed(request_owner(), tier));
        used.uses = 1;
        let mut attempt = Attempt::of(used).watched();
        let systemic = PrepareInput::Checked(Check::Systemic(down()));
        assert_eq!(attempt.on(systemic), PrepareEffect::ReadRecord);
        let mut attempt = attempt.drained(Failure::Excused);
        attempt.now = register_by(CheckKind::Warm, at(0), &LIMITS).after(LIMITS.clock_skew);
        let ends = attempt.deleted(deletion);
        assert_eq!(ends, attempt.condemned(EndReason::Untrusted));
        assert_eq!(attempt.on(PrepareInput::Written(true)), PrepareEffect::Close(down()));
    }
}

/// A created machine is withdrawn only if it is warm. A job's is assigned only when it is; a request's is
/// assigned while it warms up, and only its report can say.
#[test]
fn a_machine_that_may_be_cold_is_left_to_its_owner_when_the_mailbox_is_away() {
    let mut cold = Attempt::of(fresh(created(request_owner()))).watched();
    assert_eq!(cold.on(PrepareInput::Unanswered(down())), PrepareEffect::Close(down()));
    let mut warm = Attempt::of(fresh(created(job_owner()))).watched();
    assert_eq!(warm.on(PrepareInput::Unanswered(down())), warm.given_back());
    let mut said = Attempt::of(fresh(created(request_owner()))).watched();
    let systemic = said.on(PrepareInput::Checked(Check::Systemic(down())));
    assert_eq!(systemic, said.given_back(), "its listener could not register, so it was warm");
}

#[test]
fn a_failed_machine_is_withdrawn_only_by_the_process_that_still_has_it() {
    let failed = || {
        let mut attempt = Attempt::claimed(request_owner(), Tier::Hot).watched();
        attempt.fails(Failure::Silent);
        attempt
    };
    let mut later = record(claimed(request_owner(), Tier::Hot));
    later.generation = later.generation.next();
    let gone = [
        None,
        Some(later),
        Some(record(claimed(job_owner(), Tier::Hot))),
        Some(record(idle(Tier::Hot))),
        Some(record(releasing(request_owner(), Tier::Hot))),
    ];
    for found in gone {
        assert_eq!(
            failed().on(PrepareInput::Found(found.clone())),
            PrepareEffect::TryAnother,
            "{found:?}"
        );
    }
    let marked = record(running(request_owner()));
    assert_eq!(failed().on(PrepareInput::Found(Some(marked))), PrepareEffect::Ready);
}

#[test]
fn a_withdrawal_that_is_not_stored_is_left_to_the_reaper() {
    let mut attempt = Attempt::claimed(request_owner(), Tier::Hot).watched();
    attempt.fails(Failure::Silent);
    assert_eq!(attempt.on(PrepareInput::Unanswered(down())), PrepareEffect::TryAnother);
}

#[test]
fn githubs_answer_decides_about_a_withdrawn_machine() {
    let after = |deletion| {
        let mut attempt =
            Attempt::claimed(request_owner(), Tier::Hot).watched().withdrawn(Failure::Silent);
        let effect = attempt.deleted(deletion);
        (attempt, effect)
    };
    let (mut attempt, effect) = after(Deletion::Deleted);
    assert_eq!(effect, attempt.condemned(EndReason::FailedChecks));
    assert_eq!(attempt.on(PrepareInput::Written(true)), PrepareEffect::TryAnother);
    assert_eq!(after(Deletion::Busy).1, PrepareEffect::Ready, "a job runs there");
    let (mut attempt, effect) = after(Deletion::Unavailable);
    assert_eq!(effect, attempt.given_back());
    let closed = attempt.on(PrepareInput::Written(true));
    assert!(matches!(closed, PrepareEffect::Close(_)), "{closed:?}");
}

#[test]
fn a_late_registration_is_waited_for() {
    let mut attempt =
        Attempt::claimed(request_owner(), Tier::Stopped).watched().withdrawn(Failure::Silent);
    let judged_at = register_by(CheckKind::Started, at(0), &LIMITS).after(LIMITS.clock_skew);
    attempt.now = judged_at.before(Duration::from_millis(1));
    let asks_again = attempt.deleted(Deletion::NotFound);
    assert_eq!(asks_again, PrepareEffect::WaitUntil(judged_at));
    attempt.now = judged_at;
    assert_eq!(attempt.on(PrepareInput::Waited), PrepareEffect::DeleteRunner);
    let ends = attempt.deleted(Deletion::NotFound);
    assert_eq!(ends, attempt.condemned(EndReason::FailedChecks));
}

#[test]
fn a_job_does_not_wait_for_a_stopped_machine_that_may_register_late() {
    for tier in TIERS {
        let mut attempt = Attempt::claimed(job_owner(), tier).watched().withdrawn(Failure::Silent);
        let effect = attempt.deleted(Deletion::NotFound);
        if tier == Tier::Stopped {
            assert_eq!(effect, attempt.given_back());
            assert_eq!(attempt.on(PrepareInput::Written(true)), PrepareEffect::TryAnother);
        } else {
            assert!(matches!(effect, PrepareEffect::WaitUntil(_)), "{tier:?} {effect:?}");
        }
    }
}

#[test]
fn only_a_created_or_claimed_machine_is_marked_as_running() {
    for owner in owners() {
        for (state, claim) in [
            (created(owner.clone()), None),
            (claimed(owner.clone(), Tier::Hot), Some(crate::samples::nonce())),
        ] {
            let known = record(state);
            let event = registered(&known, Duration::from_secs(60), at(5), &LIMITS).unwrap();
            let cap = at(5).after(LIMITS.hard_cap);
            assert_eq!(
                event,
                InstanceEvent::Registered {
                    owner: owner.clone(),
                    generation: GENERATION,
                    claim,
                    at: at(5),
                    deadline: at(65),
                    cap
                }
            );
            let marked = known.on(&event).unwrap();
            assert!(is_marked(&marked, &known) && !is_same_tenure(&marked, &known));
            assert!(is_same_tenure(&known, &known) && !is_marked(&known, &known));
        }
        let marked = record(running(owner));
        assert_eq!(registered(&marked, Duration::from_secs(60), at(5), &LIMITS), None);
    }
}

#[test]
fn the_marks_of_another_tenure_are_not_ours() {
    let known = record(claimed(request_owner(), Tier::Hot));
    assert!(!is_marked(&record(running(job_owner())), &known));
    let mut later = record(running(request_owner()));
    later.generation = later.generation.next();
    assert!(!is_marked(&later, &known));
    let mut renewed = known.clone();
    renewed.revision = renewed.revision.next();
    assert!(is_same_tenure(&renewed, &known), "a renewal is no obstacle");
    let mut taken_over = known.clone();
    taken_over.generation = taken_over.generation.next();
    assert!(!is_same_tenure(&taken_over, &known));
}

#[test]
fn a_runner_of_a_request_is_named_after_its_machine() {
    let known = record(created(request_owner()));
    let name = runner_name("bp", &known.id, known.generation);
    assert_eq!(name.as_str(), format!("bp-{}-{}", known.id, known.generation));
}

/// Several agents that fall silent at once have lost their way to the mailbox, and an agent that beat
/// just now may only be late.
#[test]
fn a_machine_goes_back_if_its_silence_is_not_its_own() {
    for (owner, silence) in owners()
        .into_iter()
        .flat_map(|of| [Silence::Shared, Silence::Unproven].map(|it| (of.clone(), it)))
    {
        for failure in [Failure::NotAcknowledged, Failure::Silent] {
            let end = |attempt: &mut Attempt| {
                assert_eq!(attempt.on(PrepareInput::Compared(silence)), attempt.given_back());
                let end = attempt.on(PrepareInput::Written(true));
                let closes = matches!(end, PrepareEffect::Close(_));
                let waits = silence == Silence::Shared && matches!(attempt.owner, Owner::Job(_));
                assert_eq!(closes, waits, "{end:?}");
            };
            // The others fell silent before the machine is judged for the first time,
            let mut early = Attempt::claimed(owner.clone(), Tier::Hot).watched();
            early.on(PrepareInput::Checked(Check::Failed(failure)));
            early.on(PrepareInput::Compared(silence));
            let ours = record(claimed(owner.clone(), Tier::Hot));
            assert_eq!(early.on(PrepareInput::Found(Some(ours))), PrepareEffect::Withdraw(failure));
            let withdrawn = early.on(PrepareInput::Withdrawn);
            if silence == Silence::Shared {
                assert_eq!(withdrawn, early.given_back());
            } else {
                assert_eq!(withdrawn, PrepareEffect::DeleteRunner, "it may still be proven");
            }
            // or before it would end.
            let mut late = Attempt::claimed(owner.clone(), Tier::Hot).watched().withdrawn(failure);
            late.now = register_by(CheckKind::Warm, at(0), &LIMITS).after(LIMITS.clock_skew);
            let asked = late.on(PrepareInput::Deleted(Deletion::NotFound));
            assert_eq!(asked, PrepareEffect::CompareSilence);
            end(&mut late);
        }
    }
}

/// The store took so long for the order that the agent had no time left to obey it.
#[test]
fn a_machine_whose_order_was_stored_too_late_goes_back() {
    for (takes, goes_back) in [
        (LIMITS.assignment_acknowledged, false),
        (LIMITS.assignment_acknowledged + Duration::from_millis(1), true),
    ] {
        let mut attempt = Attempt::claimed(job_owner(), Tier::Hot);
        assert!(matches!(attempt.on(PrepareInput::Begun), PrepareEffect::Assign { .. }));
        attempt.now = attempt.now.after(takes);
        assert!(matches!(attempt.on(PrepareInput::Assigned), PrepareEffect::Watch(_)));
        let mut attempt = attempt.withdrawn(Failure::RegistrationFailed);
        let decided = attempt.deleted(Deletion::Deleted);
        if goes_back {
            assert_eq!(decided, attempt.given_back());
            assert_eq!(attempt.on(PrepareInput::Written(true)), PrepareEffect::TryAnother);
        } else {
            assert_eq!(decided, attempt.condemned(EndReason::FailedChecks));
        }
    }
}
