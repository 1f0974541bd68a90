//! Error answers of EC2: which instances they name, and whether EC2 lacks capacity.
//!
//! Not here: what other codes mean ([`crate::fault`]).

use std::collections::BTreeSet;

use aws_sdk_ec2::error::ProvideErrorMetadata;
use aws_smithy_runtime_api::client::orchestrator::HttpResponse;
use aws_smithy_runtime_api::client::result::SdkError;
use bullpen_core::ids::InstanceId;
use bullpen_core::ports::Fault;

use crate::fault::judge;

const LATER: &str = "try later, or allow more types and subnets";
const ADDRESSES: &str = "give the stack larger or more subnets";
const ON_DEMAND_QUOTA: &str =
    "have the quota \"Running On-Demand Standard instances\" of EC2 raised, in vCPUs";
const SPOT_QUOTA: &str =
    "have the quota \"All Standard Spot Instance Requests\" of EC2 raised, in vCPUs";
const FLEETS_QUOTA: &str = "have the quota for fleets of EC2 raised";
const PRICE: &str = "raise or remove `price-protection` under [instance] of bullpen.toml";
const TYPES: &str = "no zone of the stack has such types; allow others";
const VOLUMES: &str = "have the quota for volumes raised, or make them smaller";

/// Codes that mean a shortage (a later launch, another type or zone may succeed), each with a hint
/// for the operator.
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

/// Whether this code means that EC2 lacks capacity or a quota is reached.
pub(super) fn is_short(code: &str) -> bool {
    SHORT.iter().any(|(known, _)| *known == code)
}

/// The code and its hint, for the operator.
pub(super) fn short_for(code: &str) -> Option<String> {
    let (code, hint) = SHORT.iter().find(|(known, _)| *known == code)?;
    Some(format!("{code}: {hint}"))
}

/// EC2's codes for an instance that may not be changed: it is protected from stopping or
/// termination, or the role's policy asks for tags that it lacks.
const DENIED: [&str; 2] = ["OperationNotPermitted", "UnauthorizedOperation"];

/// Whether EC2 does not allow the call for the instance.
pub(super) fn is_denied(code: &str) -> bool {
    DENIED.contains(&code)
}

/// The fault of a call that EC2 does not allow for these instances.
pub(super) fn denied<'i>(code: &str, ids: impl IntoIterator<Item = &'i InstanceId>) -> Fault {
    let ids: Vec<&str> = ids.into_iter().map(InstanceId::as_str).collect();
    let ids = ids.join(", ");
    Fault::Denied(format!("{code} for {ids}: check its protection and its tags in EC2"))
}

/// Whether the code is about instances that the message names: unknown, in the wrong state, or not
/// to be changed.
fn is_about_instances(code: &str) -> bool {
    code.starts_with("InvalidInstanceID") || code == "IncorrectInstanceState" || is_denied(code)
}

/// A call that EC2 refused because of some of its instances; it did nothing for any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PartialRefusal {
    /// EC2's error code.
    pub(super) code: String,
    /// The instances that the error names; may be empty.
    pub(super) ids: BTreeSet<InstanceId>,
}

/// The refusal, if EC2 refused the call because of its instances.
pub(super) fn refused<E: ProvideErrorMetadata>(
    error: &SdkError<E, HttpResponse>,
    asked: &[InstanceId],
) -> Option<PartialRefusal> {
    let said = error.as_service_error()?;
    let code = said.code().filter(|code| is_about_instances(code))?;
    let ids = named(said.message().unwrap_or_default(), asked);
    Some(PartialRefusal { code: code.to_owned(), ids })
}

/// The instances that a message names. Compares whole words, as ids may share a beginning.
fn named(message: &str, asked: &[InstanceId]) -> BTreeSet<InstanceId> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let words: BTreeSet<&str> = message.split(|c| !is_word(c)).collect();
    asked.iter().filter(|id| words.contains(id.as_str())).cloned().collect()
}

/// The error code, if EC2 answered.
pub(super) fn code<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Option<&str> {
    error.as_service_error()?.code()
}

/// The fault for a failed call. A shortage means that the call did nothing.
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
        let said = "You are not authorized to perform this operation. User: arn:aws:sts::1:x is not \
                    authorized to perform: ec2:TerminateInstances on resource: \
                    arn:aws:ec2:eu-west-1:1:instance/i-0b because no policy allows it";
        assert_eq!(named(said, &asked), BTreeSet::from([InstanceId::new("i-0b")]));
    }

    #[test]
    fn a_shortage_is_told_from_a_refusal() {
        assert!(is_short("InsufficientInstanceCapacity") && is_short("VcpuLimitExceeded"));
        assert!(!is_short("UnauthorizedOperation"));
        assert!(is_about_instances("InvalidInstanceID.NotFound"));
        assert!(is_about_instances("InvalidInstanceID.Malformed"));
        assert!(is_about_instances("UnauthorizedOperation"));
        assert!(!is_about_instances("InvalidAMIID.NotFound"));
    }
}
