//! Whether a machine fits a request. Written independently of the engine's own check, so that a
//! mistake there is not repeated here.
//!
//! Not here: the invariants that use the answer ([`super::requests`], [`super::missed_warm`]).

use bullpen_core::instance::Record;
use bullpen_core::limits::Limits;
use bullpen_core::request::Request;

/// Why the machine does not fit this request, or `None` if it fits.
pub(super) fn misfit(record: &Record, request: &Request, limits: &Limits) -> Option<&'static str> {
    let (facts, class) = (&record.facts, &request.class);
    let is_allowed = request.allowed_types.iter().any(|p| p.matches(&facts.instance_type));
    let is_built_so =
        request.spec_hash.as_ref().is_none_or(|spec_hash| *spec_hash == facts.spec_hash);
    [
        (facts.class != class.name, "it is of another class"),
        (!class.vcpu.contains(facts.vcpu), "it has more or fewer vCPUs than the class"),
        (facts.memory_mib < class.memory_mib_min, "it has less memory than the class"),
        (facts.usage != request.usage, "its usage (spot or on-demand) differs"),
        (!is_allowed, "its type is not allowed"),
        (!is_built_so, "its spec hash differs"),
        (
            record.trust.as_ref().is_some_and(|t| *t != request.trust),
            "another trust group's code ran on it",
        ),
        (record.tainted, "another trust group's code may have run on it"),
        (record.uses >= limits.uses_max, "it has reached its maximum number of uses"),
    ]
    .into_iter()
    .find_map(|(is_wrong, what)| is_wrong.then_some(what))
}
