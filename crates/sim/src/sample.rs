//! A sample record for tests in which only its state matters.
//!
//! Not here: machines in a world ([`crate::calm_world`]).

use bullpen_core::class::{Architecture, Usage};
use bullpen_core::ids::{
    ClassName, Generation, InstanceId, InstanceType, IntentId, MailboxKey, PoolName, Revision,
    SpecHash, TrustGroup, Zone,
};
use bullpen_core::instance::{InstanceFacts, Record, State};
use bullpen_core::time::Timestamp;

/// The sample record in this state.
pub(crate) fn record(state: State) -> Record {
    let facts = InstanceFacts {
        class: ClassName::new("large"),
        instance_type: InstanceType::new("c6i.large"),
        vcpu: 2,
        memory_mib: 4_096,
        zone: Zone::new("a"),
        usage: Usage::OnDemand,
        architecture: Architecture::X64,
        spec_hash: SpecHash::new("1-0a1b2c"),
        pool: Some(PoolName::new("ci")),
        mailbox: MailboxKey::new("i-1"),
        intent: IntentId::new("intent-1"),
        launched_at: Timestamp::EPOCH,
    };
    Record {
        id: InstanceId::new("i-1"),
        facts,
        state,
        generation: Generation(0),
        revision: Revision(1),
        uses: 0,
        trust: Some(TrustGroup::new("acme/app")),
        tainted: false,
    }
}
