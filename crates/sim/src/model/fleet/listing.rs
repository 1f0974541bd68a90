//! What the model cloud shows of its machines: pages that may miss a machine, states that lag, and
//! machines without the stack's tag.
//!
//! Not here: machines' true states ([`super::state`]).

use std::time::Duration;

use bullpen_core::ids::InstanceId;
use bullpen_core::ports::{ItemKind, Listing, Machine, MachineState, Page, Unreadable};
use bullpen_core::time::Timestamp;

use super::state::{FleetEntry, FleetState};
use crate::dice::Dice;
use crate::model::ledger::NEWER;
use crate::model::locked;

/// How far the cloud's answers are from the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listings {
    /// The most machines on one page.
    pub page: usize,
    /// Of a thousand machines of a page, how many it misses.
    pub misses: u32,
    /// The longest time for which an answer shows the state before.
    pub lag_max: Duration,
}

impl Listings {
    /// Answers that are true and complete, in pages of EC2's size.
    pub const TRUE: Self = Self { page: 1_000, misses: 0, lag_max: Duration::ZERO };
}

impl Default for Listings {
    fn default() -> Self {
        Self::TRUE
    }
}

/// An oddity of one machine, until it is lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Oddity {
    /// Listings miss it; the cloud describes it by its id.
    Unlisted,
    /// No answer shows it.
    Unseen,
    /// An operator has removed its tags: listings miss it, and the cloud denies every call about it.
    Untagged,
    /// The cloud denies every call that would change it.
    Denied,
    /// A newer program has written its file.
    Newer,
}

/// Another state that answers still show.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateBefore {
    state: MachineState,
    until: Timestamp,
}

impl FleetState {
    pub(super) fn has(&self, id: &InstanceId, oddity: Oddity) -> bool {
        self.oddities.contains(&(id.clone(), oddity))
    }

    /// Whether the cloud denies calls that change the machine.
    pub(super) fn denies(&self, id: &InstanceId) -> bool {
        self.has(id, Oddity::Denied) || self.has(id, Oddity::Untagged) || self.is_neighbours(id)
    }

    /// Whether this program can read what the cloud knows of the machine.
    pub(super) fn readable(&self, id: &InstanceId) -> Result<(), Unreadable> {
        let unreadable = |text: &str, why| Err(Unreadable::of(ItemKind::Machine, id, text, why));
        if self.has(id, Oddity::Newer) {
            return unreadable(&format!("{{\"v\":{NEWER}}}"), "its file is of another version");
        }
        if self.has(id, Oddity::Untagged) {
            return unreadable("", "its tag bullpen:stack is missing");
        }
        Ok(())
    }

    /// A page of the list, after the machine of this id.
    pub(super) fn page(&self, after: Option<&str>, now: Timestamp) -> Page<Machine> {
        let own = self.entries.values().filter(|entry| !self.is_neighbours(&entry.machine.id));
        let visible = own.filter(|entry| entry.visible_at <= now);
        let mut later = visible.filter(|entry| after < Some(entry.machine.id.as_str()));
        let page: Vec<&FleetEntry> = later.by_ref().take(self.listings.page).collect();
        let last = page.last().map(|entry| entry.machine.id.to_string());
        let listed = page.into_iter().filter(|entry| !self.is_missed(&entry.machine.id));
        let listed =
            listed.map(|entry| self.readable(&entry.machine.id).map(|()| entry.shown(now)));
        Page::of(listed.collect(), last.filter(|_| later.next().is_some()))
    }

    /// Whether a listing misses the machine.
    fn is_missed(&self, id: &InstanceId) -> bool {
        let hidden = [Oddity::Unlisted, Oddity::Unseen, Oddity::Untagged];
        let is_missed = hidden.into_iter().any(|oddity| self.has(id, oddity))
            || self.dice.as_ref().is_some_and(|dice| dice.chance(self.listings.misses));
        if is_missed {
            locked(&self.hidden).insert(id.clone());
        }
        is_missed
    }

    /// What the cloud shows of these machines.
    pub(super) fn described(&self, ids: &[InstanceId], now: Timestamp) -> Listing<Machine> {
        let own = ids.iter().filter(|id| !self.is_neighbours(id));
        let found = own.filter_map(|id| self.entries.get(id));
        let seen = found.filter(|entry| {
            let is_seen = entry.visible_at <= now && !self.has(&entry.machine.id, Oddity::Unseen);
            if !is_seen {
                locked(&self.unseen).insert(entry.machine.id.clone(), now);
            }
            is_seen
        });
        seen.map(|entry| self.readable(&entry.machine.id).map(|()| entry.shown(now))).collect()
    }

    /// Moves a machine to its next state, which answers may show later.
    pub(super) fn set(&mut self, id: &InstanceId, state: MachineState, now: Timestamp) {
        let lag_max = self.listings.lag_max;
        let lag = self.dice.as_ref().filter(|_| !lag_max.is_zero());
        let lag = lag.map_or(Duration::ZERO, |dice| dice.between(Duration::ZERO, lag_max));
        let Some(entry) = self.entries.get_mut(id) else { return };
        let before = StateBefore { state: entry.shown(now).state, until: now.after(lag) };
        entry.before = (!lag.is_zero()).then_some(before);
        entry.machine.state = state;
    }

    /// Sets how far answers are from the truth, drawn with these dice.
    pub(super) fn set_listings(&mut self, listings: Listings, dice: Option<Dice>) {
        self.listings = listings;
        self.dice = dice;
    }
}

impl FleetEntry {
    /// The machine as answers show it now.
    fn shown(&self, now: Timestamp) -> Machine {
        let before = self.before.filter(|before| now < before.until);
        let state = before.map_or(self.machine.state, |before| before.state);
        Machine { state, ..self.machine.clone() }
    }
}
