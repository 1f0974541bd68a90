//! `[limits]` of `bullpen.toml`: the fields of [`Limits`] by name.
//!
//! Not here: the meaning of the limits and their relations (`limits`).

use super::super::finding::{Findings, TextPosition};
use super::super::node::MappingEntry;
use super::super::read::{ConfigKey, Fields, MappingShape, duration, positive, used};
use crate::limits::{BrokenRelation, Limits};

/// Lists every field of [`Limits`]: a missing field is a compile error.
macro_rules! limits {
    ($($key:literal => $field:ident: $form:ident,)+) => {
        const KEYS: &[ConfigKey] = &[$(used($key)),+];

        fn overridden(fields: &Fields<'_>, findings: &mut Findings) -> Limits {
            let Limits { $($field),+ } = Limits::DEFAULT;
            $(
                let $field = match fields.get($key) {
                    Some(node) => limits!(@$form, node, $key, findings).unwrap_or($field),
                    None => $field,
                };
            )+
            Limits { $($field),+ }
        }

        /// Every limit in the form that the file has.
        #[cfg(test)]
        fn written(limits: &Limits) -> Vec<(&'static str, String)> {
            vec![$(($key, limits!(@written $form, limits.$field))),+]
        }
    };
    (@duration, $node:ident, $key:literal, $findings:ident) => {
        duration($node, $key, $findings)
    };
    (@count, $node:ident, $key:literal, $findings:ident) => {
        positive($node, $key, $findings)
    };
    (@written duration, $value:expr) => {
        format!("\"{}\"", super::super::forms::duration_text($value))
    };
    (@written count, $value:expr) => {
        $value.to_string()
    };
}

limits! {
    "idle-released" => idle_released: duration,
    "idle-stopped" => idle_stopped: duration,
    "hot-lifetime" => hot_lifetime: duration,
    "hot-hard-end" => hot_hard_end: duration,
    "not-claimable-before-deadline" => not_claimable_before_deadline: duration,
    "claim-lease" => claim_lease: duration,
    "claim-renew" => claim_renew: duration,
    "assignment-acknowledged" => assignment_acknowledged: duration,
    "registration" => registration: duration,
    "registration-stopped" => registration_stopped: duration,
    "first-beat-stopped" => first_beat_stopped: duration,
    "heartbeat" => heartbeat: duration,
    "heartbeat-stale" => heartbeat_stale: duration,
    "warm-up" => warm_up: duration,
    "max-runtime-workflow" => max_runtime_workflow: duration,
    "max-runtime-service" => max_runtime_service: duration,
    "hard-cap" => hard_cap: duration,
    "release-acknowledgement" => release_acknowledgement: duration,
    "release-retry" => release_retry: duration,
    "forge-patience" => forge_patience: duration,
    "fleet-validation" => fleet_validation: duration,
    "requeue-delay" => requeue_delay: duration,
    "stop-fence" => stop_fence: duration,
    "stop-send-within" => stop_send_within: duration,
    "stop-call-timeout" => stop_call_timeout: duration,
    "sightings-max" => sightings_max: count,
    "pool-lease" => pool_lease: duration,
    "pool-lease-renew" => pool_lease_renew: duration,
    "reconcile-grace" => reconcile_grace: duration,
    "tombstone-ttl" => tombstone_ttl: duration,
    "job-row-ttl" => job_row_ttl: duration,
    "mailbox-ttl" => mailbox_ttl: duration,
    "pool-queue-retention" => pool_queue_retention: duration,
    "job-deadline" => job_deadline: duration,
    "launch-attempts-max" => launch_attempts_max: count,
    "launch-backoff" => launch_backoff: duration,
    "row-look-again" => row_look_again: duration,
    "row-lease" => row_lease: duration,
    "row-lease-renew" => row_lease_renew: duration,
    "uses-max" => uses_max: count,
    "age-max" => age_max: duration,
    "clock-skew" => clock_skew: duration,
    "request-deadline" => request_deadline: duration,
    "watchdog" => watchdog: duration,
    "shortage-memory" => shortage_memory: duration,
    "coalesce-idle" => coalesce_idle: duration,
    "coalesce-max" => coalesce_max: duration,
    "converge" => converge: duration,
    "readvertise" => readvertise: duration,
    "sweep" => sweep: duration,
    "find" => find: duration,
    "upkeep" => upkeep: duration,
    "configuration" => configuration: duration,
    "drain" => drain: duration,
}

/// The keys of `[limits]`.
pub const LIMITS: MappingShape = MappingShape { name: "`[limits]`", keys: KEYS };

/// The default limits, overridden by the file.
pub(super) fn read(fields: &Fields<'_>, findings: &mut Findings) -> Limits {
    let limits = overridden(fields, findings);
    if let Err(broken) = limits.check() {
        findings.error(culprit(fields, broken), "broken-relation", broken.rule);
    }
    limits
}

/// The first entry that breaks this relation: without it, the relation holds.
fn culprit(fields: &Fields<'_>, broken: BrokenRelation) -> TextPosition {
    for entry in fields.entries() {
        let others = fields.entries().iter().filter(|other| other.key != entry.key);
        let others: Vec<MappingEntry> = others.cloned().collect();
        let without = overridden(&fields.holding(&others), &mut Findings::default());
        if without.check() != Err(broken) {
            return entry.mark;
        }
    }
    fields.mark
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::stack;

    #[test]
    fn the_defaults_document_every_number_with_its_value() {
        for (key, value) in written(&Limits::DEFAULT) {
            let line = format!("{key} = {value}\n");
            assert!(stack::DEFAULTS.contains(&line), "config.default.toml should say: {line}");
        }
    }

    #[test]
    fn a_broken_relation_is_found_at_the_key_that_breaks_it() {
        let text = "[limits]\nheartbeat = \"5s\"\nheartbeat-stale = \"9s\"\n";
        let findings = stack::read(text.as_bytes(), &BTreeMap::new()).into_parts().1;
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        let expected =
            "3:1: error: heartbeat-stale must be at least three heartbeats [broken-relation]";
        assert_eq!(texts, [expected]);
    }
}
