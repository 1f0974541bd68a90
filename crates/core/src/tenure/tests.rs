//! Tests of the end of a tenure: each decision of a release from both sides, and each deadline.
//!
//! Not here: interleavings with other processes (`bullpen_sim::explore`, and the seeds).

use std::time::Duration;

use super::*;
use crate::claim::{Deletion, Silence};
use crate::ids::{ClaimId, Generation, Repository, RequestId, RunnerName};
use crate::instance::{Authority, EndReason, InstanceEvent, Owner, Record, State, Tier};
use crate::job::AfterJob;
use crate::mailbox::{AgentPhase, Inbox, Report, Signal, SignalKind, WithdrawalMode};
use crate::ports::Fault;
use crate::request::entry::{RequestEntry, RequestStage};
use crate::request::stranger::RanJob;
use crate::samples::{
    GENERATION, LIMITS, assigned, at, beat, claimed, created, drain, idle, inbox, job_owner,
    record, releasing, request, request_owner, running, stop, stopping,
};
use crate::time::Timestamp;

/// A releasing record of a request, outside any pool, whose owner was assigned one generation earlier.
fn released(owner: Owner, tier: Tier) -> Record {
    let mut record = record(releasing(owner, tier));
    record.facts.pool = None;
    record
}

const ASSIGNED: Generation = Generation(GENERATION.0 - 1);

fn exposed_inbox() -> Inbox {
    inbox([assigned(ASSIGNED.0), drain(GENERATION.0)])
}

fn stopping_inbox() -> Inbox {
    inbox([assigned(ASSIGNED.0), stop(GENERATION.0)])
}

fn report(signals: &[(SignalKind, Generation)]) -> Report {
    let signal = |generation| Signal {
        generation,
        owner: None,
        at: at(0),
        detail: String::new(),
        ran: None,
    };
    Report {
        beat: Some(beat(1, at(0))),
        signals: signals.iter().map(|(kind, generation)| (*kind, signal(*generation))).collect(),
    }
}

fn acknowledged() -> Report {
    report(&[(SignalKind::Removed, GENERATION)])
}

fn entry(from_fork: Option<bool>) -> RequestEntry {
    RequestEntry {
        request: request(),
        stage: RequestStage::Finished,
        worker: ClaimId::new("w-1"),
        repository: Some(Repository::new("acme/app")),
        secret_label: None,
        from_fork,
        strangers: Vec::new(),
    }
}

/// A pass, its settings and its clock.
struct Pass {
    release: Release,
    now: Timestamp,
    silence: Silence,
}

impl Pass {
    fn over(record: Record) -> Self {
        Self { release: Release::new(record, None), now: at(10), silence: Silence::Own }
    }

    fn knowing(record: Record, after: AfterJob) -> Self {
        Self { release: Release::new(record, Some(after)), now: at(10), silence: Silence::Own }
    }

    fn at(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    fn on(&mut self, input: ReleaseInput) -> ReleaseEffect {
        let spec_hash = record(idle(Tier::Hot)).facts.spec_hash;
        let settings = ReleaseSettings {
            stack: "bp",
            limits: &LIMITS,
            spec_hash: &spec_hash,
            is_shared: true,
        };
        self.release.on(input, self.now, &settings)
    }

    /// Begins, stores the withdrawal and reads the report; returns what follows.
    fn with(&mut self, inbox: Inbox, report: Report) -> ReleaseEffect {
        assert_eq!(self.on(ReleaseInput::Begun), ReleaseEffect::Post(WithdrawalMode::Drain));
        assert_eq!(self.on(ReleaseInput::Posted(inbox)), ReleaseEffect::ReadReport);
        match self.on(ReleaseInput::Report(report)) {
            ReleaseEffect::CompareSilence => self.on(ReleaseInput::Compared(self.silence)),
            effect => effect,
        }
    }
}

fn ends_as(effect: &ReleaseEffect) -> Option<EndReason> {
    match effect {
        ReleaseEffect::Write(InstanceEvent::Condemned { why, authority, .. }) => {
            assert_eq!(*authority, Authority::Release { generation: GENERATION });
            Some(*why)
        }
        _ => None,
    }
}

fn is_returned(effect: &ReleaseEffect) -> bool {
    matches!(effect, ReleaseEffect::Write(InstanceEvent::Returned { shared: true, .. }))
}

#[test]
fn an_acknowledged_withdrawal_makes_a_trusted_requests_instance_idle() {
    let mut pass = Pass::over(released(request_owner(), Tier::Released));
    let asked = pass.with(exposed_inbox(), acknowledged());
    assert_eq!(asked, ReleaseEffect::ReadRequest(RequestId::new("77.1.build")));
    let done = pass.on(ReleaseInput::Request(Some(entry(Some(false)))));
    assert!(is_returned(&done), "{done:?}");
}

#[test]
fn an_untrusted_requests_instance_ends() {
    for from_fork in [Some(true), None] {
        let mut pass = Pass::over(released(request_owner(), Tier::Released));
        pass.with(exposed_inbox(), acknowledged());
        let done = pass.on(ReleaseInput::Request(Some(entry(from_fork))));
        assert_eq!(ends_as(&done), Some(EndReason::Untrusted), "{from_fork:?}");
    }
}

#[test]
fn an_instance_that_was_never_assigned_is_idle_without_any_question() {
    for owner in [request_owner(), job_owner()] {
        let mut pass = Pass::over(released(owner, Tier::Hot));
        let done = pass.with(inbox([drain(GENERATION.0)]), Report::default());
        assert!(is_returned(&done), "{done:?}");
    }
}

#[test]
fn the_cap_ends_an_instance_before_anything_is_asked() {
    let mut pass = Pass::over(released(request_owner(), Tier::Released)).at(at(86_400));
    assert_eq!(ends_as(&pass.on(ReleaseInput::Begun)), Some(EndReason::DeadlinePassed));
}

#[test]
fn a_worn_or_tainted_or_outdated_instance_ends() {
    let end_of = |change: fn(&mut Record)| {
        let mut record = released(request_owner(), Tier::Hot);
        change(&mut record);
        let done = Pass::over(record).with(inbox([drain(GENERATION.0)]), Report::default());
        ends_as(&done)
    };
    assert_eq!(end_of(|_| {}), None);
    assert_eq!(end_of(|record| record.uses = LIMITS.uses_max), Some(EndReason::WornOut));
    assert_eq!(end_of(|record| record.tainted = true), Some(EndReason::Untrusted));
    let old = |record: &mut Record| record.facts.spec_hash = "1:ffff".into();
    assert_eq!(end_of(old), Some(EndReason::Outdated));
    let pooled = |record: &mut Record| {
        record.facts.spec_hash = "1:ffff".into();
        record.facts.pool = Some("ci".into());
    };
    assert_eq!(end_of(pooled), None, "its pool's rollout decides");
    let aged = Pass::over(released(request_owner(), Tier::Hot)).at(at(0).after(LIMITS.age_max));
    let mut aged = Pass { now: aged.now.before(Duration::from_secs(1)), ..aged };
    assert_eq!(ends_as(&aged.with(inbox([drain(GENERATION.0)]), Report::default())), None);
}

#[test]
fn a_strangers_job_is_recorded_and_then_its_instance_ends() {
    let ran = RanJob {
        repository: Repository::new("evil/fork"),
        run: 9,
        attempt: 1,
        job: "evil".to_owned(),
        event: "pull_request".to_owned(),
    };
    let mut started = report(&[(SignalKind::JobStarted, ASSIGNED)]);
    if let Some(signal) = started.signals.get_mut(&SignalKind::JobStarted) {
        signal.ran = Some(ran.clone());
    }
    for known in [Some(entry(Some(false))), None] {
        let mut pass = Pass::over(released(request_owner(), Tier::Released));
        let asked = pass.with(exposed_inbox(), started.clone());
        assert!(matches!(asked, ReleaseEffect::ReadRequest(_)), "{asked:?}");
        let noted = pass.on(ReleaseInput::Request(known));
        let ReleaseEffect::NoteStranger(id, stranger) = noted else { panic!("{noted:?}") };
        assert_eq!((id.as_str(), &stranger.ran), ("77.1.build", &ran));
        let done = pass.on(ReleaseInput::StrangerNoted);
        assert_eq!(ends_as(&done), Some(EndReason::Untrusted));
    }
}

#[test]
fn github_decides_whether_a_listener_may_stop() {
    let registered = report(&[(SignalKind::Registered, ASSIGNED)]);
    let name = RunnerName::new(format!("bp-i-1-{ASSIGNED}"));
    for (deletion, read, stops) in [
        (Deletion::Deleted, Report::default(), true),
        (Deletion::NotFound, registered.clone(), true),
        (Deletion::NotFound, Report::default(), false),
        (Deletion::Busy, registered.clone(), false),
        (Deletion::Unavailable, registered.clone(), true),
        (Deletion::Unavailable, Report::default(), false),
    ] {
        let mut pass = Pass::over(released(request_owner(), Tier::Released));
        let asked = pass.with(exposed_inbox(), read);
        assert_eq!(asked, ReleaseEffect::DeleteRunners(vec![name.clone()]));
        let decided = pass.on(ReleaseInput::Deleted(vec![deletion]));
        let expected =
            if stops { ReleaseEffect::Post(WithdrawalMode::Stop) } else { ReleaseEffect::Wait };
        assert_eq!(decided, expected, "{deletion:?}");
    }
}

#[test]
fn an_agent_that_says_it_is_busy_is_not_stopped_while_github_is_down() {
    let mut busy = report(&[(SignalKind::Registered, ASSIGNED)]);
    if let Some(beat) = &mut busy.beat {
        beat.phase = AgentPhase::Busy;
    }
    let mut pass = Pass::over(released(request_owner(), Tier::Released));
    pass.with(exposed_inbox(), busy);
    let decided = pass.on(ReleaseInput::Deleted(vec![Deletion::Unavailable]));
    assert_eq!(decided, ReleaseEffect::Wait);
}

#[test]
fn a_runner_that_was_never_seen_is_believed_gone_once_no_registration_can_follow() {
    let limits = LIMITS;
    let longest = limits.fleet_validation + limits.clock_skew;
    for (after, stops) in
        [(longest.saturating_sub(Duration::from_millis(1)), false), (longest, true)]
    {
        let pass = Pass::over(released(request_owner(), Tier::Released));
        let mut pass = pass.at(at(0).after(after));
        pass.with(exposed_inbox(), Report::default());
        let decided = pass.on(ReleaseInput::Deleted(vec![Deletion::NotFound]));
        assert_eq!(decided == ReleaseEffect::Post(WithdrawalMode::Stop), stops, "{after:?}");
    }
}

#[test]
fn a_stop_that_was_posted_is_waited_for() {
    let mut pass = Pass::over(released(request_owner(), Tier::Released));
    pass.with(exposed_inbox(), Report::default());
    pass.on(ReleaseInput::Deleted(vec![Deletion::Deleted]));
    assert_eq!(pass.on(ReleaseInput::Posted(stopping_inbox())), ReleaseEffect::Wait);
}

#[test]
fn an_agent_that_never_acknowledges_costs_its_instance_unless_a_job_runs() {
    let patience = LIMITS.release_acknowledgement + LIMITS.clock_skew;
    let late = at(10).after(patience);
    let early = late.before(Duration::from_millis(1));
    let mut pass = Pass::over(released(request_owner(), Tier::Released)).at(early);
    assert_eq!(pass.with(stopping_inbox(), Report::default()), ReleaseEffect::Wait);
    for (deletion, ended) in [
        (Deletion::Deleted, Some(EndReason::NotAcknowledged)),
        (Deletion::NotFound, Some(EndReason::NotAcknowledged)),
        (Deletion::Busy, None),
        (Deletion::Unavailable, None),
    ] {
        let mut pass = Pass::over(released(request_owner(), Tier::Released)).at(late);
        let asked = pass.with(stopping_inbox(), Report::default());
        assert!(matches!(asked, ReleaseEffect::DeleteRunners(_)), "{asked:?}");
        let decided = pass.on(ReleaseInput::Deleted(vec![deletion]));
        assert_eq!(ends_as(&decided), ended, "{deletion:?}: {decided:?}");
    }
}

#[test]
fn a_shared_silence_does_not_end_the_instance_for_a_while() {
    let silent_for = |silence, silent: Duration| {
        let mut pass = Pass::over(released(request_owner(), Tier::Released));
        pass.silence = silence;
        pass.at(at(10).after(silent)).with(stopping_inbox(), Report::default())
    };
    let patience = LIMITS.release_acknowledgement + LIMITS.clock_skew;
    assert_eq!(silent_for(Silence::Shared, patience), ReleaseEffect::Wait);
    let asks = |effect| matches!(effect, ReleaseEffect::DeleteRunners(_));
    assert!(asks(silent_for(Silence::Own, patience)));
    // An agent that beats and does not acknowledge has had its time.
    assert!(asks(silent_for(Silence::Unproven, patience)));
    assert!(asks(silent_for(Silence::Shared, LIMITS.shared_silence)));
}

#[test]
fn a_newer_order_in_the_mailbox_means_that_another_process_is_further() {
    let mut pass = Pass::over(released(request_owner(), Tier::Released));
    let newer = inbox([assigned(ASSIGNED.0), drain(GENERATION.0 + 1)]);
    assert_eq!(pass.with(newer, Report::default()), ReleaseEffect::Overtaken);
    let mut pass = Pass::over(record(idle(Tier::Hot)));
    assert_eq!(pass.on(ReleaseInput::Begun), ReleaseEffect::Overtaken);
}

#[test]
fn a_stopped_instance_is_idle_again_if_the_cloud_says_that_it_is_stopped() {
    for (stopped, returned) in [(true, true), (false, false)] {
        let record = released(request_owner(), Tier::Stopped);
        let mut pass = Pass::over(record);
        assert_eq!(pass.with(exposed_inbox(), Report::default()), ReleaseEffect::Describe);
        let mut effect = pass.on(ReleaseInput::Described { stopped });
        if matches!(effect, ReleaseEffect::ReadRequest(_)) {
            effect = pass.on(ReleaseInput::Request(Some(entry(Some(false)))));
        }
        assert_eq!(is_returned(&effect), returned, "{effect:?}");
    }
}

#[test]
fn a_jobs_instance_waits_for_the_row_to_say_what_becomes_of_it() {
    let of_job = || released(job_owner(), Tier::Released);
    let mut pass = Pass::over(of_job());
    let asked = pass.with(exposed_inbox(), acknowledged());
    assert_eq!(asked, ReleaseEffect::ReadJob("4242".into()));
    // A row that is forgotten or unreadable says nothing good of the instance.
    for row in [Ok(None), Err(Fault::Unreadable("v9".to_owned()))] {
        let mut pass = Pass::over(of_job());
        pass.with(exposed_inbox(), acknowledged());
        let done = pass.on(ReleaseInput::Job(row));
        assert_eq!(ends_as(&done), Some(EndReason::WornOut));
    }
    let mut pass = Pass::over(of_job());
    pass.with(exposed_inbox(), acknowledged());
    let down = Fault::unavailable("ledger");
    assert_eq!(pass.on(ReleaseInput::Job(Err(down.clone()))), ReleaseEffect::Fail(down));
    // The caller has decided it.
    let mut pass = Pass::knowing(of_job(), AfterJob::End(EndReason::Untrusted));
    let done = pass.with(exposed_inbox(), acknowledged());
    assert_eq!(ends_as(&done), Some(EndReason::Untrusted));
    let mut pass = Pass::knowing(of_job(), AfterJob::Pool);
    assert!(is_returned(&pass.with(exposed_inbox(), acknowledged())));
}

#[test]
fn a_jobs_row_that_cannot_be_read_leaves_its_runner_alone() {
    let mut pass = Pass::over(released(job_owner(), Tier::Released));
    let asked = pass.with(exposed_inbox(), report(&[(SignalKind::Registered, ASSIGNED)]));
    assert!(matches!(asked, ReleaseEffect::ReadJob(_)), "{asked:?}");
    let mut busy = report(&[(SignalKind::Registered, ASSIGNED)]);
    if let Some(beat) = &mut busy.beat {
        beat.phase = AgentPhase::Busy;
    }
    let mut pass = Pass::over(released(job_owner(), Tier::Released));
    pass.with(exposed_inbox(), busy);
    let decided = pass.on(ReleaseInput::Job(Err(Fault::unavailable("ledger"))));
    assert_eq!(decided, ReleaseEffect::Wait);
}

#[test]
fn every_state_has_its_deadline_and_nothing_is_due_before_it() {
    for (state, due_at) in [
        (created(request_owner()), 600),
        (idle(Tier::Hot), 420),
        (claimed(request_owner(), Tier::Hot), 300),
        (running(request_owner()), 1_800),
        (stopping(), 600),
    ] {
        let record = record(state.clone());
        let late = at(due_at).after(LIMITS.clock_skew);
        let early = late.before(Duration::from_millis(1));
        assert_eq!(due(&record, early, &LIMITS), DueAction::Leave, "{state:?}");
        let action = due(&record, late, &LIMITS);
        let expected = match state {
            State::Idle { .. } | State::Stopping { .. } => {
                matches!(action, DueAction::Condemn(_))
            }
            State::Running { .. } => action == DueAction::ReadReport,
            _ => matches!(action, DueAction::TakeBack(_)),
        };
        assert!(expected, "{state:?}: {action:?}");
    }
    let releasing = record(releasing(request_owner(), Tier::Hot));
    assert_eq!(due(&releasing, at(0), &LIMITS), DueAction::Release);
    let ending = record(State::Terminating { why: EndReason::WornOut, since: at(0) });
    assert_eq!(due(&ending, at(0), &LIMITS), DueAction::Terminate);
}

#[test]
fn a_busy_instance_keeps_its_owner_up_to_the_hard_cap() {
    let running = record(running(request_owner()));
    let now = at(1_900);
    let keep = Duration::from_secs(600);
    let told = |phase, seen| {
        let mut report = Report { beat: Some(beat(3, seen)), ..Report::default() };
        if let Some(beat) = &mut report.beat {
            beat.phase = phase;
        }
        due_while_running(&running, Some(&report), keep, now, &LIMITS)
    };
    let extended = InstanceEvent::Extended {
        owner: request_owner(),
        generation: GENERATION,
        deadline: now.after(keep),
    };
    assert_eq!(told(AgentPhase::Busy, now), DueAction::Extend(extended));
    let over = DueAction::TakeBack(Authority::Deadline { at: now });
    assert_eq!(told(AgentPhase::Waiting, now), over);
    assert_eq!(told(AgentPhase::Busy, at(1_800)), over, "its last heartbeat is stale");
    assert_eq!(due_while_running(&running, None, keep, now, &LIMITS), over);
    let capped = due(&running, at(86_400).after(LIMITS.clock_skew), &LIMITS);
    assert!(matches!(capped, DueAction::TakeBack(_)), "a report is not even read: {capped:?}");
}

#[test]
fn an_owner_takes_back_only_the_generation_it_saw() {
    let owner = request_owner();
    let running = record(running(owner.clone()));
    assert_eq!(owner_may_end(&running, &owner, GENERATION), OwnerMayEnd::Yes);
    assert_eq!(owner_may_end(&running, &owner, ASSIGNED), OwnerMayEnd::No);
    assert_eq!(owner_may_end(&running, &job_owner(), GENERATION), OwnerMayEnd::No);
    let releasing = record(releasing(owner.clone(), Tier::Hot));
    assert_eq!(owner_may_end(&releasing, &owner, ASSIGNED), OwnerMayEnd::Releasing);
    assert_eq!(owner_may_end(&releasing, &job_owner(), ASSIGNED), OwnerMayEnd::No);
}

#[test]
fn only_an_instance_that_never_warmed_up_ends_at_once() {
    let authority = || Authority::Owner { owner: request_owner(), generation: GENERATION };
    let event = |state: State, report: Option<&Report>| {
        end_of_tenure(&record(state), report, authority(), at(10), &LIMITS)
    };
    let warm = report(&[(SignalKind::WarmUpOk, Generation(0))]);
    for cold in [None, Some(&Report::default())] {
        let ended = event(created(request_owner()), cold);
        assert!(
            matches!(ended, InstanceEvent::Condemned { why: EndReason::RequestFailed, .. }),
            "{ended:?}"
        );
    }
    let cap_of = |event| match event {
        InstanceEvent::Withdrawn { cap, .. } => cap,
        other => panic!("{other:?}"),
    };
    let hard_cap = at(10).after(LIMITS.hard_cap);
    assert_eq!(cap_of(event(created(request_owner()), Some(&warm))), hard_cap);
    assert_eq!(cap_of(event(claimed(request_owner(), Tier::Hot), None)), hard_cap);
    assert_eq!(cap_of(event(running(request_owner()), None)), at(86_400), "its own cap stays");
}
