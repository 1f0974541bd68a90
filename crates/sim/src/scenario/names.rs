//! Names of machines by number: `m1` is the first that was launched.
//!
//! Not here: the cloud's ids, which a transcript never shows.

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{Machine, Ports};

use crate::world::World;

/// Whether a text has the form of a machine's name.
pub(super) fn is_name(text: &str) -> bool {
    let digits = text.strip_prefix('m').unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Every machine launched so far, in that order.
#[derive(Clone, Debug)]
pub(super) struct Names(Vec<InstanceId>);

impl Names {
    pub(super) fn of(world: &World) -> Self {
        let mut machines: Vec<Machine> = world.outside.fleet().snapshot();
        machines
            .sort_by(|one, other| (one.launched_at, &one.id).cmp(&(other.launched_at, &other.id)));
        Self(machines.into_iter().map(|machine| machine.id).collect())
    }

    pub(super) fn id(&self, name: &str) -> Option<&InstanceId> {
        let number: usize = name.strip_prefix('m')?.parse().ok()?;
        self.0.get(number.checked_sub(1)?)
    }

    /// Names in the order of their numbers; of many machines only the count.
    pub(super) fn list(&self, ids: &[InstanceId]) -> String {
        /// A longer list is unreadable.
        const NAMED_MAX: usize = 12;
        if ids.len() > NAMED_MAX {
            return format!("{} machines", ids.len());
        }
        let mut places: Vec<usize> =
            ids.iter().filter_map(|id| self.0.iter().position(|other| other == id)).collect();
        places.sort_unstable();
        let names: Vec<String> = places.iter().map(|index| format!("m{}", index + 1)).collect();
        names.join(" ")
    }

    /// A text with names in place of ids.
    pub(super) fn put_into(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (index, id) in self.0.iter().enumerate() {
            if text.contains(id.as_str()) {
                text = text.replace(id.as_str(), &format!("m{}", index + 1));
            }
        }
        text
    }
}
