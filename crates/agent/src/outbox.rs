//! Signals that the mailbox has not stored yet.
//!
//! A later signal of a kind replaces an earlier signal of that kind, as it would in the store. The
//! agent sends them one at a time, in order, until each is stored: losing a signal would make the
//! control plane end a healthy machine.
//!
//! Not here: sending (`agent`).

use std::collections::VecDeque;

use bullpen_core::limits::SIGNAL_DETAIL_BYTES_MAX;
use bullpen_core::mailbox::{Signal, SignalKind};

/// The waiting signals, at most one per kind.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<(SignalKind, Signal)>,
}

impl Outbox {
    /// Adds a signal. Returns whether the agent must send it first: an interruption leaves little
    /// time.
    pub(crate) fn push(&mut self, kind: SignalKind, signal: Signal) -> bool {
        let signal = Signal { detail: tail(&signal.detail).to_owned(), ..signal };
        self.waiting.retain(|(waiting, _)| *waiting != kind);
        let urgent = kind == SignalKind::Interrupted;
        if urgent {
            self.waiting.push_front((kind, signal));
        } else {
            self.waiting.push_back((kind, signal));
        }
        urgent
    }

    /// The signal to send next.
    pub(crate) fn next(&self) -> Option<(SignalKind, Signal)> {
        self.waiting.front().cloned()
    }

    /// Removes a stored signal, but not a newer signal that replaced it in the meantime.
    pub(crate) fn stored(&mut self, kind: SignalKind, signal: &Signal) {
        self.waiting.retain(|(waiting, latest)| *waiting != kind || latest != signal);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// The end of a text, cut between characters.
pub(crate) fn tail(text: &str) -> &str {
    let from = text.len().saturating_sub(SIGNAL_DETAIL_BYTES_MAX);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..]
}

#[cfg(test)]
mod tests {
    use bullpen_core::ids::Generation;
    use bullpen_core::time::Timestamp;

    use super::*;

    fn signal(generation: u64, detail: &str) -> Signal {
        let generation = Generation(generation);
        let (at, detail) = (Timestamp::EPOCH, detail.to_owned());
        Signal { generation, owner: None, at, detail, ran: None }
    }

    #[test]
    fn a_later_signal_of_a_kind_replaces_an_earlier_one() {
        let mut outbox = Outbox::default();
        outbox.push(SignalKind::Acknowledged, signal(1, ""));
        outbox.push(SignalKind::Registered, signal(1, ""));
        outbox.push(SignalKind::Acknowledged, signal(2, ""));
        assert_eq!(outbox.next(), Some((SignalKind::Registered, signal(1, ""))));
        outbox.stored(SignalKind::Registered, &signal(1, ""));
        outbox.stored(SignalKind::Acknowledged, &signal(1, ""));
        assert_eq!(outbox.next(), Some((SignalKind::Acknowledged, signal(2, ""))));
    }

    #[test]
    fn an_interruption_goes_first() {
        let mut outbox = Outbox::default();
        assert!(!outbox.push(SignalKind::JobStarted, signal(1, "")));
        assert!(outbox.push(SignalKind::Interrupted, signal(1, "spot")));
        assert_eq!(outbox.next(), Some((SignalKind::Interrupted, signal(1, "spot"))));
    }

    #[test]
    fn a_long_detail_keeps_its_end() {
        let mut outbox = Outbox::default();
        let long = format!("ä{}end", "x".repeat(SIGNAL_DETAIL_BYTES_MAX - 4));
        outbox.push(SignalKind::WarmUpFailed, signal(0, &long));
        let (_, kept) = outbox.next().unwrap();
        assert!(kept.detail.len() <= SIGNAL_DETAIL_BYTES_MAX);
        assert!(kept.detail.ends_with("xend"));
    }
}
