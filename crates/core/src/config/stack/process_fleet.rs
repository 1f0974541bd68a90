//! `[process-fleet]` of `bullpen.toml`: what machines that are processes of one host pretend to be.
//!
//! Not here: the machines (`bullpen-embedded`), or which types there are.

use std::collections::BTreeSet;
use std::time::Duration;

use super::super::finding::Findings;
use super::super::read::{Fields, Shape, count, duration, items, shown, text, used};
use super::ProcessFleet;
use crate::class::Usage;
use crate::creation::Offering;
use crate::ids::{InstanceType, Zone};

/// The keys of `[process-fleet]`.
pub const PROCESS_FLEET: Shape = Shape {
    name: "`[process-fleet]`",
    keys: &[used("boot-delay"), used("capacity"), used("out-of")],
};

/// Long enough to be seen, short enough to wait for.
const BOOT_DELAY_DEFAULT: Duration = Duration::from_secs(2);
/// A laptop can hold as many agents and listeners.
const CAPACITY_DEFAULT: u32 = 32;

pub(super) fn read(fields: Option<&Fields<'_>>, findings: &mut Findings) -> ProcessFleet {
    let get = |key: &str| fields.and_then(|fields| fields.get(key));
    let boot_delay = get("boot-delay").and_then(|node| duration(node, "boot-delay", findings));
    let capacity = get("capacity").and_then(|node| count(node, "capacity", findings));
    ProcessFleet {
        boot_delay: boot_delay.unwrap_or(BOOT_DELAY_DEFAULT),
        capacity: capacity.unwrap_or(CAPACITY_DEFAULT),
        out_of: out_of(fields, findings),
    }
}

/// A list of offerings, each once.
fn out_of(fields: Option<&Fields<'_>>, findings: &mut Findings) -> BTreeSet<Offering> {
    let key = "out-of";
    let mut offerings = BTreeSet::new();
    let Some(node) = fields.and_then(|fields| fields.get(key)) else { return offerings };
    for item in items(node, key, "a list of offerings", findings).unwrap_or_default() {
        let Some(written) = text(&item, key, findings) else { continue };
        let Some(offering) = offering(written) else {
            let message = format!("{} is not of the form `usage/type/zone`", shown(written));
            findings
                .error(item.mark, "bad-offering", message)
                .instead("such as `spot/c6i.large/local-a`");
            continue;
        };
        if !offerings.insert(offering) {
            let message = format!("{} is there twice", shown(written));
            findings.error(item.mark, "duplicate-value", message);
        }
    }
    offerings
}

fn offering(text: &str) -> Option<Offering> {
    let (usage, rest) = text.split_once('/')?;
    let (instance_type, zone) = rest.split_once('/')?;
    let is_whole = !instance_type.is_empty() && !zone.is_empty() && !zone.contains('/');
    let usage = [Usage::Spot, Usage::OnDemand].into_iter().find(|known| known.as_str() == usage)?;
    is_whole.then(|| Offering {
        usage,
        instance_type: InstanceType::new(instance_type),
        zone: Zone::new(zone),
    })
}
