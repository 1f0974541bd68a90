//! Sample values for this crate's tests: one machine, three owners, and a clock that starts at
//! noon.
//!
//! Not here: random values (each property test has its own), or code of a built program.

use std::time::Duration;

use crate::class::{Architecture, RunnerClass, Scripts, Usage, VcpuRange};
use crate::ids::{
    ClaimId, ClassName, Generation, InstanceId, InstanceType, IntentId, JobId, MailboxKey,
    PoolName, RequestId, Revision, RunnerName, SpecHash, StopOp, TrustGroup, Zone,
};
use crate::instance::{InstanceFacts, Owner, Record, State, Tier};
use crate::limits::Limits;
use crate::mailbox::{
    AgentPhase, Assignment, Beat, Credential, Inbox, Order, Secret, Withdrawal, WithdrawalMode,
};
use crate::message::Advert;
use crate::ports::{Machine, MachineState, Tags};
use crate::request::{OnPartial, Request, TypePattern};
use crate::time::Timestamp;

/// The generation of every sample record.
pub(crate) const GENERATION: Generation = Generation(5);
/// The limits of the samples.
pub(crate) const LIMITS: Limits = Limits::DEFAULT;

/// The time this many seconds after noon.
pub(crate) fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_767_268_800_000).after(Duration::from_secs(seconds))
}

pub(crate) fn request_owner() -> Owner {
    Owner::Request(RequestId::new("77.1.build"))
}

pub(crate) fn job_owner() -> Owner {
    Owner::Job(JobId::new("4242"))
}

pub(crate) fn pool() -> PoolName {
    PoolName::new("ci")
}

pub(crate) fn pool_owner() -> Owner {
    Owner::Pool(pool())
}

pub(crate) fn trust() -> TrustGroup {
    TrustGroup::new("acme/app")
}

pub(crate) fn nonce() -> ClaimId {
    ClaimId::new("claim-1")
}

pub(crate) fn stop_op() -> StopOp {
    StopOp::new("stop-1")
}

pub(crate) fn facts() -> InstanceFacts {
    InstanceFacts {
        class: ClassName::new("large"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        zone: Zone::new("eu-west-1a"),
        usage: Usage::OnDemand,
        architecture: Architecture::X64,
        spec_hash: SpecHash::new("1:0a1b2c"),
        pool: Some(pool()),
        mailbox: MailboxKey::new("AROA:i-1"),
        intent: IntentId::new("intent-1"),
        launched_at: at(0),
    }
}

/// A pool's machine in this state, with `acme/app` as the last trust group.
pub(crate) fn record(state: State) -> Record {
    Record {
        id: InstanceId::new("i-1"),
        facts: facts(),
        state,
        generation: GENERATION,
        revision: Revision(9),
        uses: 3,
        trust: Some(trust()),
        tainted: false,
    }
}

/// A heartbeat of the boot `boot-1`.
pub(crate) fn beat(seq: u64, at: Timestamp) -> Beat {
    Beat { seq, at, phase: AgentPhase::Waiting, boot: "boot-1".into() }
}

pub(crate) fn created(owner: Owner) -> State {
    State::Created { owner, deadline: at(600) }
}

pub(crate) fn idle(tier: Tier) -> State {
    State::Idle { tier, since: at(0), deadline: at(420), shared: true }
}

/// Claimed by `owner` with [`nonce`]; before it, `acme/before` had run on the machine.
pub(crate) fn claimed(owner: Owner, tier: Tier) -> State {
    let trusted_before = Some(TrustGroup::new("acme/before"));
    State::Claimed { owner, claim: nonce(), tier, trusted_before, lease: at(300) }
}

pub(crate) fn running(owner: Owner) -> State {
    State::Running { owner, since: at(0), deadline: at(1_800), cap: at(86_400) }
}

/// Being taken back from `owner`; before it, `acme/before` had run on the machine.
pub(crate) fn releasing(owner: Owner, tier: Tier) -> State {
    let trusted_before = Some(TrustGroup::new("acme/before"));
    State::Releasing { owner, tier, trusted_before, since: at(0), cap: at(86_400) }
}

pub(crate) fn stopping() -> State {
    State::Stopping { op: stop_op(), until: at(60), deadline: at(600) }
}

pub(crate) fn assignment(generation: u64) -> Assignment {
    Assignment {
        generation: Generation(generation),
        owner: job_owner(),
        runner: RunnerName::new("bullpen-4242-1"),
        label: "warm-4242".into(),
        credential: Some(Credential::Jit(Secret::new("jit-secret"))),
        register_by: None,
        hard_cap: at(86_400),
        issued_at: None,
        own_run: None,
        group: None,
        ephemeral: false,
    }
}

pub(crate) fn withdrawal(generation: u64, mode: WithdrawalMode) -> Withdrawal {
    Withdrawal {
        generation: Generation(generation),
        mode,
        at: at(10),
        idle_deadline: at(430),
        removal_token: None,
    }
}

pub(crate) fn assigned(generation: u64) -> Order {
    Order::Assigned(assignment(generation))
}

pub(crate) fn drain(generation: u64) -> Order {
    Order::Withdrawn(withdrawal(generation, WithdrawalMode::Drain))
}

pub(crate) fn stop(generation: u64) -> Order {
    Order::Withdrawn(withdrawal(generation, WithdrawalMode::Stop))
}

/// The inbox after these orders; it must accept each.
pub(crate) fn inbox(orders: impl IntoIterator<Item = Order>) -> Inbox {
    let mut stored = None;
    for order in orders {
        stored = Some(Inbox::accept(stored.as_ref(), order).unwrap());
    }
    stored.expect("at least one order")
}

/// The advert of an idle machine that fits [`request`].
pub(crate) fn advert(id: &str, generation: u64) -> Advert {
    Advert {
        id: InstanceId::new(id),
        class: ClassName::new("large"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        usage: Usage::OnDemand,
        deadline: at(420),
        generation: Some(Generation(generation)),
        tier: Tier::Released,
        pool: None,
        trust: Some(trust()),
        spec_hash: None,
    }
}

pub(crate) fn request() -> Request {
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
        allowed_types: vec![TypePattern::new("c6i.*"), TypePattern::new("c7a.*")],
        trust: trust(),
        deadline: at(600),
        on_partial: OnPartial::TopUp,
        on_demand_fallback: false,
        spec_hash: None,
        ephemeral: false,
        only_unused: None,
    }
}

/// A running machine with [`facts`].
pub(crate) fn machine(id: &str) -> Machine {
    let facts = facts();
    Machine {
        id: InstanceId::new(id),
        state: MachineState::Running,
        intent: facts.intent,
        class: facts.class,
        pool: facts.pool,
        instance_type: facts.instance_type,
        vcpu: facts.vcpu,
        memory_mib: facts.memory_mib,
        architecture: facts.architecture,
        zone: facts.zone,
        usage: facts.usage,
        launched_at: facts.launched_at,
        mailbox: facts.mailbox,
        tags: Tags::default(),
    }
}
