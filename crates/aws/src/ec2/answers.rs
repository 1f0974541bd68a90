//! What EC2 answers when it does not do what it was asked: which ids it names, and whether it is
//! short of something.
//!
//! Not here: what codes mean otherwise ([`crate::fault`]).

use std::collections::BTreeSet;

use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::Fault;

use crate::fault::judge;

const LATER: &str = "later, or with more types and subnets, there may be room";
const ADDRESSES: &str = "give the stack larger or more subnets";
const ON_DEMAND_QUOTA: &str =
    "have the quota \"Running On-Demand Standard instances\" of EC2 raised, in vCPUs";
const SPOT_QUOTA: &str =
    "have the quota \"All Standard Spot Instance Requests\" of EC2 raised, in vCPUs";
const FLEETS_QUOTA: &str = "have the quota for fleets of EC2 raised";
const PRICE: &str = "raise or remove `price-protection` under [instance] of bullpen.toml";
const TYPES: &str = "no zone of the stack has such types; allow others";
const VOLUMES: &str = "have the quota for volumes raised, or make them smaller";

/// Codes that mean: not now, perhaps later, perhaps another type or zone; and what to do.
const SHORT: &[(&str, &str)] = &[
    ("InsufficientAddressCapacity", ADDRESSES),
    ("InsufficientCapacity", LATER),
    ("InsufficientCapacityOnHost", LATER),
    ("InsufficientFreeAddressesInSubnet", ADDRESSES),
    ("InsufficientHostCapacity", LATER),
    ("InsufficientInstanceCapacity", LATER),
    ("InsufficientReservedInstanceCapacity", LATER),
    ("InstanceLimitExceeded", ON_DEMAND_QUOTA),
    ("MaxFleetCountExceeded", FLEETS_QUOTA),
    ("MaxSpotInstanceCountExceeded", SPOT_QUOTA),
    ("SpotMaxPriceTooLow", PRICE),
    ("UnfulfillableCapacity", LATER),
    ("Unsupported", TYPES),
    ("VcpuLimitExceeded", ON_DEMAND_QUOTA),
    ("VolumeLimitExceeded", VOLUMES),
];

/// Whether this code means that EC2 is short of what was asked for.
pub(super) fn is_short(code: &str) -> bool {
    SHORT.iter().any(|(known, _)| *known == code)
}

/// What EC2 is short of and what to do about it, in a few words.
pub(super) fn short_for(code: &str) -> Option<String> {
    let (code, hint) = SHORT.iter().find(|(known, _)| *known == code)?;
    Some(format!("{code}: {hint}"))
}

/// What says that somebody protects an instance from being stopped or ended.
pub(super) const PROTECTED: &str = "OperationNotPermitted";

/// Whether it is about instances that the message names: unknown, not in a state for it, or protected.
fn is_about_instances(code: &str) -> bool {
    code.starts_with("InvalidInstanceID") || ["IncorrectInstanceState", PROTECTED].contains(&code)
}

/// A call that was refused for some of the instances it was about; nothing was done for any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialRefusal {
    /// The code.
    pub(super) code: String,
    /// The instances it names; it may name none.
    pub(super) ids: BTreeSet<InstanceId>,
}

/// Whether the call was refused because of instances, and which.
pub(super) fn refused<E: ProvideErrorMetadata>(
    error: &SdkError<E, HttpResponse>,
    asked: &[InstanceId],
) -> Option<PartialRefusal> {
    let said = error.as_service_error()?;
    let code = said.code().filter(|code| is_about_instances(code))?;
    let ids = named(said.message().unwrap_or_default(), asked);
    Some(PartialRefusal { code: code.to_owned(), ids })
}

/// Which of the instances a message is about. One id is never the beginning of another.
fn named(message: &str, asked: &[InstanceId]) -> BTreeSet<InstanceId> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words: BTreeSet<&str> = message.split(|c| !is_word(c)).collect();
    asked.iter().filter(|id| words.contains(id.as_str())).cloned().collect()
}

/// The code of a call that EC2 answered with an error.
pub(super) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error.as_service_error()?.code()
}

/// What a failed call means to a caller that has no other use for it. Nothing was done by a call
/// that EC2 is too short for.
pub(super) fn fault<E>(error: &SdkError<E, HttpResponse>) -> Fault
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    match code(error) {
        Some(code) if is_short(code) => Fault::NoCapacity,
        _ => judge(error).fault(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_whole_ids() {
        let asked = ["i-0a", "i-0ab", "i-0b"].map(InstanceId::new);
        let said = "The instance IDs 'i-0ab, i-0c' do not exist";
        assert_eq!(named(said, &asked), BTreeSet::from([InstanceId::new("i-0ab")]));
        assert_eq!(named("The instance 'i-0a' is not in a state", &asked).len(), 1);
        assert_eq!(named("nothing", &asked).len(), 0);
    }

    #[test]
    fn a_shortage_is_told_from_a_refusal() {
        assert!(is_short("InsufficientInstanceCapacity") && is_short("VcpuLimitExceeded"));
        assert!(!is_short("UnauthorizedOperation"));
        assert!(is_about_instances("InvalidInstanceID.NotFound"));
        assert!(is_about_instances("InvalidInstanceID.Malformed"));
        assert!(!is_about_instances("InvalidAMIID.NotFound"));
    }
}
