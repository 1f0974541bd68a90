//! The table of transitions, rendered by asking the code and held against the checked-in page.
//!
//! Every state gets every event in its most *favourable* form: from the right owner, with the right
//! generation, nonce and proof, at the right time. An event that is refused even then is always
//! refused.
//!
//! Not here: events that lack the right authority (`refusals`).

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use super::super::{AfterWarmUp, Authority, InstanceEvent, InstanceRefusal};
use crate::ids::{ClaimId, StopOp};
use crate::instance::{EndReason, Record, State, StateName, Tier};
use crate::mailbox::{RemovalProof, Unexposed};
use crate::samples::{
    LIMITS, at, claimed, created, idle, job_owner, nonce, pool, pool_owner, record, releasing,
    request_owner, running, stop_op, stopping, trust,
};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/instance-transitions.md");

const INTRODUCTION: &str = "\
# Instance transitions

How each state of an instance responds to each event. A test writes this page by asking `Record::on`; it
fails when the two differ, and `BULLPEN_BLESS=1 cargo test -p bullpen-core` writes the page anew.

Every event is given in its most favourable form: from the right owner, at the right generation, with the
right nonce and proof, at the right time. So an event that is refused here is always refused; an accepted
event still has to bring that authority, and the ledger still has to find the record as the writer read it.

The names of refusals are those of `InstanceRefusal`. *Illegal* means that the state never accepts the event.
*Generation* says whether the move fences every earlier writer.
";

#[test]
fn the_page_of_transitions_is_what_the_code_does() {
    let rendered = page();
    if blessing() {
        std::fs::write(PAGE, &rendered).unwrap();
    }
    let stored = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        stored == rendered,
        "docs/instance-transitions.md differs from the code; \
         write it anew with `BULLPEN_BLESS=1 cargo test -p bullpen-core` and read the difference"
    );
}

#[test]
fn the_page_leaves_out_no_state_and_no_event() {
    let states: BTreeSet<_> = subjects().iter().map(|record| record.state.name()).collect();
    assert_eq!(states, BTreeSet::from(StateName::ALL));
    for record in subjects() {
        let events: BTreeSet<_> = events(&record).iter().map(ordinal).collect();
        assert_eq!(events, (0..EVENTS).collect(), "from {}", subject_name(&record.state));
    }
}

#[expect(clippy::disallowed_methods, reason = "a variable is the only way to ask for this")]
fn blessing() -> bool {
    std::env::var("BULLPEN_BLESS").is_ok_and(|value| value == "1")
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for record in subjects() {
        section(&mut page, &record).expect("writing to a string");
    }
    page
}

fn section(page: &mut String, record: &Record) -> std::fmt::Result {
    let (mut rows, mut illegal) = (Vec::new(), Vec::new());
    for event in events(record) {
        let name = event_name(&event);
        match record.on(&event) {
            Ok(next) => {
                let fences = if next.generation > record.generation { "+1" } else { "same" };
                rows.push(format!("| {name} | {} | {fences} |", subject_name(&next.state)));
            }
            Err(InstanceRefusal::Illegal { event, .. }) => illegal.push(event),
            Err(refusal) => {
                rows.push(format!("| {name} | *refused: {}* | |", refusal_name(&refusal)));
            }
        }
    }
    illegal.dedup(); // An illegal event is refused for every authority.
    writeln!(page, "\n## {}\n", subject_name(&record.state))?;
    if !rows.is_empty() {
        writeln!(page, "| event | next | generation |\n|---|---|---|\n{}\n", rows.join("\n"))?;
    }
    writeln!(page, "Illegal: {}.", illegal.join(", "))
}

/// Every state, in each variant that responds differently.
fn subjects() -> Vec<Record> {
    [
        created(pool_owner()),
        created(request_owner()),
        idle(Tier::Hot),
        idle(Tier::Released),
        idle(Tier::Stopped),
        claimed(job_owner(), Tier::Hot),
        claimed(job_owner(), Tier::Stopped),
        running(job_owner()),
        releasing(job_owner(), Tier::Hot),
        releasing(job_owner(), Tier::Released),
        releasing(job_owner(), Tier::Stopped),
        stopping(),
        State::Terminating { why: EndReason::Operator, since: at(0) },
        State::Terminated { why: EndReason::Operator, at: at(0), forget_at: at(604_800) },
    ]
    .map(record)
    .into()
}

fn subject_name(state: &State) -> String {
    let name = state.name().as_str();
    match state {
        State::Created { owner, .. } if *owner == pool_owner() => format!("{name} (for a pool)"),
        State::Created { .. } => format!("{name} (for a request or job)"),
        State::Idle { tier, .. } => format!("{name} ({})", tier_name(*tier)),
        State::Claimed { tier, .. } | State::Releasing { tier, .. } => {
            format!("{name} (was {})", tier_name(*tier))
        }
        State::Running { .. }
        | State::Stopping { .. }
        | State::Terminating { .. }
        | State::Terminated { .. } => name.into(),
    }
}

fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Hot => "hot",
        Tier::Released => "released",
        Tier::Stopped => "stopped",
    }
}

/// Every event in its most favourable form for this record.
fn events(record: &Record) -> Vec<InstanceEvent> {
    let generation = record.generation;
    let mut events = standby_events();
    events.extend(tenure_events(record));
    for authority in authorities(record) {
        events.push(InstanceEvent::Withdrawn { authority, warm: true, at: at(2), cap: at(86_400) });
    }
    for removal in
        [RemovalProof::NeverAssigned, RemovalProof::Acknowledged, RemovalProof::MachineStopped]
    {
        let proof = Unexposed::assumed(generation, removal);
        events.push(InstanceEvent::Returned { proof, at: at(3), deadline: at(900), shared: true });
    }
    for authority in authorities(record) {
        events.push(InstanceEvent::Condemned { authority, why: EndReason::Operator, at: at(4) });
    }
    events.push(InstanceEvent::Gone { at: at(5), forget_at: at(604_800) });
    events
}

fn standby_events() -> Vec<InstanceEvent> {
    let warmed_up = |into| InstanceEvent::WarmedUp { pool: pool(), at: at(1), into };
    let (op, until, deadline) = (StopOp::new("stop-2"), at(120), at(900));
    vec![
        warmed_up(AfterWarmUp::Hot { deadline, shared: true }),
        warmed_up(AfterWarmUp::ToStop { op: stop_op(), until, deadline }),
        InstanceEvent::FoundRunning { op: op.clone(), until, deadline },
        InstanceEvent::StopAgain { op, until },
        InstanceEvent::FoundStopped { at: at(60), skew: Duration::ZERO, deadline, shared: true },
    ]
}

fn tenure_events(record: &Record) -> Vec<InstanceEvent> {
    let generation = record.generation;
    let owner = record.state.owner().cloned().unwrap_or_else(job_owner);
    let (again, lease) = (ClaimId::new("claim-2"), at(330));
    let (claim, cap) = (matches!(record.state, State::Claimed { .. }).then(nonce), at(86_400));
    let margin = LIMITS.not_claimable_before_deadline;
    vec![
        InstanceEvent::Claimed {
            owner: owner.clone(),
            claim: again.clone(),
            trust: trust(),
            seen: generation,
            at: at(1),
            margin,
            lease,
        },
        InstanceEvent::TakenOver { owner: owner.clone(), generation, claim: again, lease },
        InstanceEvent::Renewed { claim: nonce(), generation, lease },
        InstanceEvent::Registered {
            owner: owner.clone(),
            generation,
            claim,
            at: at(1),
            deadline: at(900),
            cap,
        },
        InstanceEvent::Extended { owner: owner.clone(), generation, deadline: at(3_600) },
    ]
}

fn authorities(record: &Record) -> [Authority; 6] {
    let owner = record.state.owner().cloned().unwrap_or_else(job_owner);
    let generation = record.generation;
    [
        Authority::Owner { owner, generation },
        Authority::Release { generation },
        Authority::Deadline { at: record.state.deadline() },
        Authority::Pool { pool: pool() },
        Authority::Operator,
        Authority::Cloud,
    ]
}

/// A new kind of authority does not compile until it has a name; [`authorities`] must then make it.
fn authority_name(authority: &Authority) -> &'static str {
    match authority {
        Authority::Owner { .. } => "the owner",
        Authority::Release { .. } => "the release",
        Authority::Deadline { .. } => "the deadline",
        Authority::Pool { .. } => "the pool",
        Authority::Operator => "an operator",
        Authority::Cloud => "the cloud",
    }
}

fn event_name(event: &InstanceEvent) -> String {
    let name = event.name();
    match event {
        InstanceEvent::Withdrawn { authority, .. } | InstanceEvent::Condemned { authority, .. } => {
            format!("{name} by {}", authority_name(authority))
        }
        InstanceEvent::Returned { proof, .. } => match proof.removal() {
            RemovalProof::NeverAssigned => format!("{name}, never assigned"),
            RemovalProof::Acknowledged => format!("{name}, acknowledged"),
            RemovalProof::MachineStopped => format!("{name}, machine stopped"),
        },
        InstanceEvent::WarmedUp { into: AfterWarmUp::Hot { .. }, .. } => {
            format!("{name}, to stay hot")
        }
        InstanceEvent::WarmedUp { into: AfterWarmUp::ToStop { .. }, .. } => {
            format!("{name}, to be stopped")
        }
        _ => name.into(),
    }
}

fn refusal_name(refusal: &InstanceRefusal) -> &'static str {
    match refusal {
        InstanceRefusal::Illegal { .. } => "illegal",
        InstanceRefusal::Fenced { .. } => "fenced",
        InstanceRefusal::NotTheOwner => "not the owner",
        InstanceRefusal::AnotherClaim => "another claim",
        InstanceRefusal::Expiring { .. } => "expiring",
        InstanceRefusal::TooEarly { .. } => "too early",
        InstanceRefusal::NotWarm => "not warm",
        InstanceRefusal::UnfitProof => "unfit proof",
        InstanceRefusal::Protected { .. } => "protected",
    }
}

const EVENTS: usize = 13;

/// A number for each kind of event. A new kind does not compile until it has one, and then fails
/// the test above until [`events`] makes it.
fn ordinal(event: &InstanceEvent) -> usize {
    let ordinal = match event {
        InstanceEvent::WarmedUp { .. } => 0,
        InstanceEvent::FoundRunning { .. } => 1,
        InstanceEvent::StopAgain { .. } => 2,
        InstanceEvent::FoundStopped { .. } => 3,
        InstanceEvent::Claimed { .. } => 4,
        InstanceEvent::TakenOver { .. } => 5,
        InstanceEvent::Renewed { .. } => 6,
        InstanceEvent::Registered { .. } => 7,
        InstanceEvent::Extended { .. } => 8,
        InstanceEvent::Withdrawn { .. } => 9,
        InstanceEvent::Returned { .. } => 10,
        InstanceEvent::Condemned { .. } => 11,
        InstanceEvent::Gone { .. } => 12,
    };
    assert!(ordinal < EVENTS, "raise EVENTS");
    ordinal
}
