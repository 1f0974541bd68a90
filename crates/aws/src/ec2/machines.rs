//! Translates EC2's instances into the core's machines.
//!
//! Not here: the calls that describe them ([`super`]).

use aws_sdk_ec2::types::{Instance, InstanceLifecycleType, InstanceStateName};
use bullpen_core::class::Usage;
use bullpen_core::ids::{
    ClassName, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, Zone,
};
use bullpen_core::ports::{ItemKind, Machine, MachineState, Unreadable};
use bullpen_core::time::Timestamp;

use super::tags;
use super::types::Types;

/// The key of a machine's mailbox: the AWS user id of its agent, so that a policy can restrict the
/// agent to it.
pub(super) fn mailbox(role_id: &str, id: &InstanceId) -> MailboxKey {
    MailboxKey::new(format!("{role_id}:{id}"))
}

pub(super) fn instance_type(instance: &Instance) -> Option<InstanceType> {
    instance.instance_type().map(|name| InstanceType::new(name.as_str()))
}

/// The machine of an instance; none if it lacks our tags or its type is unknown.
pub(super) fn machine(instance: &Instance, types: &Types, role_id: &str) -> Option<Machine> {
    let tags = instance.tags();
    let id = InstanceId::new(instance.instance_id()?);
    let instance_type = instance_type(instance)?;
    let facts = types.get(&instance_type)?;
    let spot = instance.instance_lifecycle() == Some(&InstanceLifecycleType::Spot);
    Some(Machine {
        mailbox: mailbox(role_id, &id),
        id,
        state: state(instance.state()?.name()?),
        intent: IntentId::new(tags::value(tags, tags::INTENT)?),
        class: ClassName::new(tags::value(tags, tags::CLASS)?),
        pool: tags::value(tags, tags::POOL).map(PoolName::new),
        instance_type,
        vcpu: facts.vcpu,
        memory_mib: facts.memory_mib,
        architecture: facts.architecture,
        zone: Zone::new(instance.placement()?.availability_zone()?),
        usage: if spot { Usage::Spot } else { Usage::OnDemand },
        launched_at: Timestamp::from_millis(instance.launch_time()?.to_millis().ok()?),
        tags: tags::put_on(tags),
    })
}

/// An instance that is not gone and that cannot be read as a machine of this stack.
pub(super) fn unreadable(instance: &Instance) -> Option<Unreadable> {
    let state = instance.state()?.name().map(state)?;
    let why = "its tags are not those of a machine of this stack: put them back, or end it by hand";
    let unreadable = Unreadable::of(ItemKind::Machine, instance.instance_id()?, "", why);
    (state != MachineState::Gone).then_some(unreadable)
}

fn state(name: &InstanceStateName) -> MachineState {
    match name {
        InstanceStateName::Running => MachineState::Running,
        InstanceStateName::Stopping => MachineState::Stopping,
        InstanceStateName::Stopped => MachineState::Stopped,
        InstanceStateName::ShuttingDown | InstanceStateName::Terminated => MachineState::Gone,
        // A state unknown to us counts as pending, which is looked at again.
        _ => MachineState::Pending,
    }
}
