//! Arbitrary values of all stored types.
//!
//! Not here: damaged texts (`damage`).

use bullpen_core::class::Usage;
use bullpen_core::ids::{
    ClassName, Generation, InstanceId, InstanceType, JobId, PoolName, Repository, RequestId,
    RunnerGroup, RunnerName, SpecHash, TrustGroup,
};
use bullpen_core::instance::{Owner, Tier};
use bullpen_core::mailbox::{
    AgentPhase, Assignment, Beat, Credential, Inbox, Order, Report, Secret, Signal, SignalKind,
    Withdrawal, WithdrawalMode,
};
use bullpen_core::message::Advert;
use bullpen_core::request::stranger::{OwnRun, RanJob};
use bullpen_core::time::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Any text, sometimes with characters that JSON must escape.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z0-9./-]{0,20}",
        2 => ".{0,12}",
        1 => vec(any::<char>(), 0..12).prop_map(String::from_iter),
    ]
}

fn time() -> impl Strategy<Value = Timestamp> {
    prop_oneof![
        3 => 1_700_000_000_000..1_900_000_000_000_i64,
        1 => any::<i64>(),
    ]
    .prop_map(Timestamp::from_millis)
}

fn generation() -> impl Strategy<Value = Generation> {
    prop_oneof![0..9_u64, any::<u64>()].prop_map(Generation)
}

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        text().prop_map(|id| Owner::Request(RequestId::new(id))),
        text().prop_map(|id| Owner::Job(JobId::new(id))),
        text().prop_map(|name| Owner::Pool(PoolName::new(name))),
    ]
}

/// The advert of any idle machine.
pub(crate) fn advert() -> impl Strategy<Value = Advert> {
    let tier = select(vec![Tier::Hot, Tier::Released, Tier::Stopped]);
    let usage = select(vec![Usage::Spot, Usage::OnDemand]);
    let machine = (text(), text(), text(), any::<u32>(), any::<u32>(), usage);
    let offer = (time(), option::of(generation()), tier);
    let ours = (option::of(text()), option::of(text()), option::of(text()));
    (machine, offer, ours).prop_map(|(machine, offer, ours)| Advert {
        id: InstanceId::new(machine.0),
        class: ClassName::new(machine.1),
        instance_type: InstanceType::new(machine.2),
        vcpu: machine.3,
        memory_mib: machine.4,
        usage: machine.5,
        deadline: offer.0,
        generation: offer.1,
        tier: offer.2,
        pool: ours.0.map(PoolName::new),
        trust: ours.1.map(TrustGroup::new),
        spec_hash: ours.2.map(SpecHash::new),
    })
}

fn ran() -> impl Strategy<Value = RanJob> {
    (text(), any::<u64>(), any::<u32>(), text(), text()).prop_map(
        |(repository, run, attempt, job, event)| RanJob {
            repository: Repository::new(repository),
            run,
            attempt,
            job,
            event,
        },
    )
}

fn own_run() -> impl Strategy<Value = OwnRun> {
    (option::of(text()), option::of(any::<u64>()))
        .prop_map(|(repository, run)| OwnRun { repository: repository.map(Repository::new), run })
}

fn assignment() -> impl Strategy<Value = Assignment> {
    let credential = (any::<bool>(), text()).prop_map(|(jit, secret)| {
        let secret = Secret::new(&secret);
        if jit { Credential::Jit(secret) } else { Credential::RegistrationToken(secret) }
    });
    let group = option::of(text());
    let times = (option::of(time()), time(), option::of(time()), option::of(own_run()), group);
    (generation(), owner(), text(), text(), option::of(credential), times).prop_map(
        |(generation, owner, runner, label, credential, rest)| {
            let (register_by, hard_cap, issued_at, own_run, group) = rest;
            Assignment {
                generation,
                owner,
                runner: RunnerName::new(runner),
                label,
                credential,
                register_by,
                hard_cap,
                issued_at,
                own_run,
                group: group.map(RunnerGroup::new),
                ephemeral: false,
            }
        },
    )
}

fn withdrawal() -> impl Strategy<Value = Withdrawal> {
    let mode = select(vec![WithdrawalMode::Drain, WithdrawalMode::Stop]);
    (generation(), mode, time(), time(), option::of(text())).prop_map(
        |(generation, mode, at, idle_deadline, token)| Withdrawal {
            generation,
            mode,
            at,
            idle_deadline,
            removal_token: token.as_deref().map(Secret::new),
        },
    )
}

/// Any inbox, even if no sequence of orders leads to it.
pub(crate) fn inbox() -> impl Strategy<Value = Inbox> {
    let order = prop_oneof![
        assignment().prop_map(Order::Assigned),
        withdrawal().prop_map(Order::Withdrawn),
    ];
    (generation(), order).prop_map(|(assigned, order)| Inbox { assigned, order })
}

/// Any report.
pub(crate) fn report() -> impl Strategy<Value = Report> {
    let phase = select(vec![
        AgentPhase::WarmingUp,
        AgentPhase::Waiting,
        AgentPhase::Registering,
        AgentPhase::Listening,
        AgentPhase::Busy,
        AgentPhase::Cleaning,
    ]);
    let kind = select(vec![
        SignalKind::WarmUpOk,
        SignalKind::WarmUpFailed,
        SignalKind::Acknowledged,
        SignalKind::Registered,
        SignalKind::RegistrationFailed,
        SignalKind::JobStarted,
        SignalKind::ListenerEnded,
        SignalKind::Removed,
        SignalKind::Interrupted,
    ]);
    let beat = (any::<u64>(), time(), phase, text()).prop_map(|(seq, at, phase, boot)| Beat {
        seq,
        at,
        phase,
        boot,
    });
    let signal = (generation(), option::of(owner()), time(), text(), option::of(ran())).prop_map(
        |(generation, owner, at, detail, ran)| Signal { generation, owner, at, detail, ran },
    );
    (option::of(beat), btree_map(kind, signal, 0..9))
        .prop_map(|(beat, signals)| Report { beat, signals })
}

/// Any JSON text, with our own names among its keys and values.
pub(crate) fn json() -> impl Strategy<Value = String> {
    let word = select(vec![
        "v",
        "record",
        "id",
        "instanceId",
        "resourceClass",
        "instanceType",
        "cpu",
        "mmem",
        "mem",
        "usageClass",
        "threshold",
        "generation",
        "tier",
        "order",
        "assigned",
        "withdrawn",
        "beat",
        "signals",
        "mode",
        "owner",
        "on-demand",
        "released",
        "2026-01-01T00:00:00Z",
    ])
    .prop_map(|word| format!("\"{word}\""));
    let number = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_filter_map("finite", |n| n.is_finite().then(|| n.to_string())),
        Just("1".to_owned()),
        Just("1e999".to_owned()),
    ];
    let leaf = prop_oneof![
        word.clone(),
        number,
        select(vec!["null", "true", "false"]).prop_map(str::to_owned)
    ];
    leaf.prop_recursive(5, 48, 10, move |inner| {
        let field = (word.clone(), inner.clone()).prop_map(|(key, value)| format!("{key}:{value}"));
        prop_oneof![
            vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            vec(field, 0..10).prop_map(|fields| format!("{{{}}}", fields.join(","))),
        ]
    })
}
