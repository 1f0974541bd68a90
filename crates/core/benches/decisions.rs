//! Benchmarks for single decisions: claims, transitions, exposure proofs, reactions, messages.
//!
//! Not here: calls to other systems.

use std::hint::black_box;
use std::time::Duration;

use bullpen_core::class::{Architecture, RunnerClass, Scripts, Usage, VcpuRange};
use bullpen_core::ids::{
    ClaimId, ClassName, Generation, InstanceId, InstanceType, IntentId, JobId, MailboxKey,
    RequestId, Revision, RunnerName, SpecHash, TrustGroup, Zone,
};
use bullpen_core::instance::{InstanceEvent, InstanceFacts, Owner, Record, State, Tier};
use bullpen_core::limits::Limits;
use bullpen_core::mailbox::agent::{ActedOn, react};
use bullpen_core::mailbox::{
    Assignment, Credential, Inbox, Order, Report, Secret, Signal, SignalKind, Withdrawal,
    WithdrawalMode, prove_unexposed,
};
use bullpen_core::message::{self, Advert};
use bullpen_core::pickup::judge;
use bullpen_core::request::{OnPartial, Request, TypePattern};
use bullpen_core::time::Timestamp;
use criterion::{Criterion, criterion_group, criterion_main};

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_268_800_000).after(Duration::from_secs(seconds))
}

fn idle() -> Record {
    Record {
        id: InstanceId::new("i-0a1b2c3d4e5f60718"),
        facts: InstanceFacts {
            class: ClassName::new("large"),
            instance_type: InstanceType::new("c6i.large"),
            vcpu: 2,
            memory_mib: 4_096,
            zone: Zone::new("eu-west-1a"),
            usage: Usage::OnDemand,
            architecture: Architecture::X64,
            spec_hash: SpecHash::new("1-0a1b2c"),
            pool: None,
            mailbox: MailboxKey::new("AROA:i-0a1b2c3d4e5f60718"),
            intent: IntentId::new("intent-1"),
            launched_at: at(0),
        },
        state: State::Idle { tier: Tier::Released, since: at(0), deadline: at(420), shared: true },
        generation: Generation(5),
        revision: Revision(9),
        uses: 3,
        trust: Some(TrustGroup::new("acme/app")),
        tainted: false,
    }
}

fn claim(seen: u64) -> InstanceEvent {
    InstanceEvent::Claimed {
        owner: Owner::Job(JobId::new("4242")),
        claim: ClaimId::new("claim-1"),
        trust: TrustGroup::new("acme/app"),
        seen: Generation(seen),
        at: at(1),
        margin: Limits::DEFAULT.not_claimable_before_deadline,
        lease: at(301),
    }
}

fn request() -> Request {
    Request {
        id: RequestId::new("77.1.build"),
        incarnation: 0,
        class: RunnerClass {
            name: ClassName::new("large"),
            vcpu: VcpuRange::exactly(2),
            memory_mib_min: 4_096,
            architecture: Architecture::X64,
            scripts: Scripts::default(),
            base: Box::default(),
        },
        count: 2,
        usage: Usage::OnDemand,
        allowed_types: ["m7i.*", "c7a.*", "c6i.*"].map(TypePattern::new).into(),
        trust: TrustGroup::new("acme/app"),
        deadline: at(600),
        on_partial: OnPartial::TopUp,
        on_demand_fallback: false,
        spec_hash: None,
        ephemeral: false,
        only_unused: None,
    }
}

fn advert() -> Advert {
    idle().advert().expect("a shared idle machine has an advert")
}

fn assignment(generation: u64) -> Assignment {
    Assignment {
        generation: Generation(generation),
        owner: Owner::Job(JobId::new("4242")),
        runner: RunnerName::new("bullpen-4242-1"),
        label: "warm-4242".into(),
        credential: Some(Credential::Jit(Secret::new(&"j".repeat(4_096)))),
        register_by: None,
        hard_cap: at(86_400),
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    }
}

fn withdrawn() -> Inbox {
    let assigned = Inbox::accept(None, Order::Assigned(assignment(5)))
        .expect("the mailbox accepts the first order");
    let withdrawal = Withdrawal {
        generation: Generation(6),
        mode: WithdrawalMode::Stop,
        at: at(10),
        idle_deadline: at(430),
        removal_token: None,
    };
    Inbox::accept(Some(&assigned), Order::Withdrawn(withdrawal))
        .expect("the mailbox accepts a newer order")
}

fn removed() -> Report {
    let signal = Signal {
        generation: Generation(6),
        owner: None,
        at: at(12),
        detail: String::new(),
        ran: None,
    };
    Report { beat: None, signals: [(SignalKind::Removed, signal)].into() }
}

fn judging(c: &mut Criterion) {
    let (request, limits, matching) = (request(), Limits::DEFAULT, advert());
    let mismatch = Advert { instance_type: InstanceType::new("t3.large"), ..advert() };
    for (name, advert) in [("judge, match", &matching), ("judge, mismatch", &mismatch)] {
        c.bench_function(name, |b| {
            b.iter(|| judge(black_box(advert), black_box(&request), &limits, at(0)));
        });
    }
}

fn moving(c: &mut Criterion) {
    let record = idle();
    for (name, event) in [("transition, claim", claim(5)), ("transition, refused", claim(4))] {
        c.bench_function(name, |b| b.iter(|| black_box(&record).on(black_box(&event))));
    }
}

fn messages(c: &mut Criterion) {
    let advert = advert();
    let text = message::encode(&advert);
    c.bench_function("message, encode", |b| b.iter(|| message::encode(black_box(&advert))));
    c.bench_function("message, decode", |b| b.iter(|| message::decode(black_box(&text))));
}

fn mailboxes(c: &mut Criterion) {
    let (inbox, report) = (withdrawn(), removed());
    c.bench_function("prove unexposed", |b| {
        b.iter(|| prove_unexposed(Some(black_box(&inbox)), Some(&report), Generation(6), false));
    });
    let listening = ActedOn {
        rank: Some(Order::Assigned(assignment(5)).rank()),
        listener: Some(assignment(5)),
    };
    let removed = ActedOn { rank: Some(inbox.order.rank()), listener: None };
    for (name, acted) in [("react, remove", &listening), ("react, wait", &removed)] {
        c.bench_function(name, |b| b.iter(|| react(black_box(acted), Some(&inbox), false, at(20))));
    }
}

criterion_group!(decisions, judging, moving, messages, mailboxes);
criterion_main!(decisions);
