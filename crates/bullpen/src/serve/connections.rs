//! Which connections a listener keeps: a pure decision.
//!
//! A connection is *proven* once it carried a signed request. When the listener is full, the unproven
//! connection that has been idle longest is closed for a new one; a proven connection whose request is
//! being answered never is. One address may have a few unproven connections, unless it is a proxy's.
//!
//! Not here: sockets (`http`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bullpen_core::config::stack::Network;

/// How long a connection is kept before it may be closed for another, and how long new ones wait
/// before they are refused: an honest sender has sent its request by then.
const KEPT_AT_LEAST: Duration = Duration::from_secs(1);

/// The limits of one listener.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimits {
    /// Connections at once.
    pub(super) connections: usize,
    /// Unproven connections of one address at once.
    pub(super) unproven_per_peer: usize,
    /// Addresses for which that does not count.
    pub(super) proxies: Vec<Network>,
}

/// A connection's number.
pub(super) type ConnectionId = u64;

/// The sender of a connection: an address, or the whole IPv6 network that one site has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Peer(IpAddr);

impl Peer {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let site = u128::from(address) >> 64 << 64;
                Self(IpAddr::V6(site.into()))
            }
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }
}

/// What is known of an open connection.
#[derive(Clone, Copy, Debug)]
struct Known {
    peer: Peer,
    is_proven: bool,
    /// Whether a request of it is being read or answered.
    is_busy: bool,
    opened: Duration,
    /// When a request of it last began or ended, or when it was opened.
    since: Duration,
}

impl Known {
    /// The lowest rank is closed first; a connection without a rank is never closed for another.
    const fn rank(&self) -> Option<u8> {
        match (self.is_proven, self.is_busy) {
            (false, false) => Some(0),
            (false, true) => Some(1),
            (true, false) => Some(2),
            (true, true) => None,
        }
    }

    /// From when on it may be closed for another. An unproven one does not put that off by asking.
    fn closable_at(&self) -> Option<Duration> {
        let from = if self.is_proven { self.since } else { self.opened };
        self.rank().map(|_| from + KEPT_AT_LEAST)
    }
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It is admitted.
    Admitted(ConnectionId),
    /// It is admitted, and another connection is closed for it.
    Replaces {
        /// The new connection.
        new: ConnectionId,
        /// The connection to close.
        closes: ConnectionId,
    },
    /// The listener is full.
    Refused,
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    limits: ConnectionLimits,
    open: BTreeMap<ConnectionId, Known>,
    last: ConnectionId,
    /// Since when no connection could be admitted.
    full_since: Option<Duration>,
}

impl Connections {
    /// None is open yet.
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, open: BTreeMap::new(), last: 0, full_since: None }
    }

    /// When the next connection is to be accepted: now, as soon as it can be admitted, or, if it
    /// cannot, after a while, to refuse it.
    pub(super) fn accepts_at(&mut self, now: Duration) -> Duration {
        if self.open.len() < self.limits.connections || self.closable(now, |_| true).is_some() {
            self.full_since = None;
            return now;
        }
        let full_since = *self.full_since.get_or_insert(now);
        let closable_at = self.open.values().filter_map(Known::closable_at).min();
        closable_at.unwrap_or(Duration::MAX).min(full_since + KEPT_AT_LEAST)
    }

    /// Decides about a new connection of this address.
    pub(super) fn admit(&mut self, address: IpAddr, now: Duration) -> Admission {
        let peer = Peer::of(address);
        let is_counted = !self.limits.proxies.iter().any(|proxy| proxy.contains(address));
        let is_same_peer = |known: &Known| known.peer == peer && !known.is_proven;
        let same_peer = self.open.values().filter(|known| is_same_peer(known)).count();
        let is_over = is_counted && same_peer >= self.limits.unproven_per_peer;
        let closes = match (is_over, self.open.len() < self.limits.connections) {
            (false, true) => None,
            (true, _) => match self.closable(now, is_same_peer) {
                Some(closes) => Some(closes),
                None => return Admission::Refused,
            },
            (false, false) => match self.closable(now, |_| true) {
                Some(closes) => Some(closes),
                None => return Admission::Refused,
            },
        };
        self.last += 1;
        let new = self.last;
        let known = Known { peer, is_proven: false, is_busy: false, opened: now, since: now };
        self.open.insert(new, known);
        match closes {
            Some(closes) => {
                self.open.remove(&closes);
                Admission::Replaces { new, closes }
            }
            None => Admission::Admitted(new),
        }
    }

    /// The connection that would be closed for another now.
    fn closable(&self, now: Duration, may_close: impl Fn(&Known) -> bool) -> Option<ConnectionId> {
        let closable = self.open.iter().filter(|(_, known)| {
            may_close(known) && known.closable_at().is_some_and(|at| at <= now)
        });
        closable.min_by_key(|(id, known)| (known.rank(), known.since, **id)).map(|(id, _)| *id)
    }

    /// The head of a request was read.
    pub(super) fn request_begins(&mut self, id: ConnectionId, now: Duration) {
        self.set_busy(id, true, now);
    }

    /// The request was answered.
    pub(super) fn request_ends(&mut self, id: ConnectionId, now: Duration) {
        self.set_busy(id, false, now);
    }

    /// A request of it was signed.
    pub(super) fn set_proven(&mut self, id: ConnectionId) {
        if let Some(known) = self.open.get_mut(&id) {
            known.is_proven = true;
        }
    }

    /// The connection is closed.
    pub(super) fn closed(&mut self, id: ConnectionId) {
        if self.open.remove(&id).is_some() {
            self.full_since = None;
        }
    }

    fn set_busy(&mut self, id: ConnectionId, is_busy: bool, now: Duration) {
        if let Some(known) = self.open.get_mut(&id) {
            known.is_busy = is_busy;
            known.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn listener(connections: usize, unproven_per_peer: usize) -> Connections {
        let proxies = vec![PROXY.parse().expect("a network")];
        Connections::new(ConnectionLimits { connections, unproven_per_peer, proxies })
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    impl Connections {
        fn connect(&mut self, address: &str, millis: u64) -> Admission {
            self.admit(address.parse().expect("an address"), at(millis))
        }
    }

    #[test]
    fn the_unproven_connection_that_is_idle_longest_is_closed() {
        let mut connections = listener(3, 9);
        for (number, address) in ["1.1.1.1", "2.2.2.2", "3.3.3.3"].into_iter().enumerate() {
            assert!(matches!(connections.connect(address, number as u64), Admission::Admitted(_)));
        }
        connections.request_begins(1, at(5));
        connections.request_ends(1, at(10));
        let admission = connections.connect("4.4.4.4", 5_000);
        assert_eq!(admission, Admission::Replaces { new: 4, closes: 2 }, "1 asked later");
        assert_eq!(
            connections.connect("4.4.4.4", 5_000),
            Admission::Replaces { new: 5, closes: 3 }
        );
        assert_eq!(
            connections.connect("4.4.4.4", 5_000),
            Admission::Replaces { new: 6, closes: 1 }
        );
        assert_eq!(connections.connect("4.4.4.4", 5_000), Admission::Refused, "the others are new");
    }

    #[test]
    fn a_slow_request_is_closed_after_the_idle_and_a_signed_one_stays() {
        let mut connections = listener(4, 9);
        for _ in 1..=4 {
            connections.connect("1.1.1.1", 0);
        }
        for signed in [1, 2] {
            connections.request_begins(signed, at(1));
            connections.set_proven(signed);
        }
        connections.request_ends(2, at(2));
        connections.request_begins(3, at(3));
        let closed = |connections: &mut Connections| match connections.connect("2.2.2.2", 9_000) {
            Admission::Replaces { new, closes } => {
                connections.request_begins(new, at(9_000));
                connections.set_proven(new);
                Some(closes)
            }
            Admission::Admitted(_) | Admission::Refused => None,
        };
        assert_eq!(closed(&mut connections), Some(4), "it says nothing");
        assert_eq!(closed(&mut connections), Some(3), "it asks, and has not signed");
        assert_eq!(closed(&mut connections), Some(2), "it has signed, and says nothing");
        assert_eq!(closed(&mut connections), None, "all are being answered");
        connections.closed(1);
        assert!(matches!(connections.connect("2.2.2.2", 9_000), Admission::Admitted(_)));
    }

    /// As in a flood: the requests come after the listener is full.
    #[test]
    fn unproven_connections_that_go_on_asking_are_closed_all_the_same() {
        let mut connections = listener(2, 9);
        for _ in 0..2 {
            connections.connect("1.1.1.1", 0);
        }
        assert_eq!(connections.accepts_at(at(100)), at(1_000));
        for id in [1, 2] {
            connections.request_begins(id, at(900));
        }
        assert_eq!(connections.accepts_at(at(1_000)), at(1_000));
        assert_eq!(
            connections.connect("2.2.2.2", 1_000),
            Admission::Replaces { new: 3, closes: 1 }
        );
    }

    #[test]
    fn one_address_has_a_few_connections_until_it_signs_unless_it_is_a_proxy() {
        let mut connections = listener(100, 2);
        connections.connect("1.1.1.1", 0);
        connections.connect("1.1.1.1", 0);
        assert_eq!(connections.connect("1.1.1.1", 10), Admission::Refused);
        assert!(
            matches!(connections.connect("1.1.1.2", 10), Admission::Admitted(_)),
            "that is another"
        );
        connections.set_proven(1);
        assert!(matches!(connections.connect("1.1.1.1", 10), Admission::Admitted(_)));
        let own = Admission::Replaces { new: 5, closes: 2 };
        assert_eq!(connections.connect("1.1.1.1", 2_000), own, "its own, and no other's");
        for _ in 0..50 {
            assert!(matches!(connections.connect(PROXY, 2_000), Admission::Admitted(_)));
        }
        connections.connect("2001:db8::1", 2_000);
        connections.connect("2001:db8::2", 2_000);
        assert_eq!(
            connections.connect("2001:db8::3", 2_000),
            Admission::Refused,
            "one site is one peer"
        );
        assert!(matches!(connections.connect("2001:db8:0:1::1", 2_000), Admission::Admitted(_)));
    }

    #[test]
    fn new_connections_wait_before_they_are_refused() {
        let mut connections = listener(2, 9);
        assert_eq!(connections.accepts_at(at(0)), at(0));
        connections.connect("1.1.1.1", 0);
        connections.connect("1.1.1.1", 400);
        assert_eq!(connections.accepts_at(at(500)), at(1_000), "the first may be closed by then");
        for id in [1, 2] {
            connections.request_begins(id, at(600));
            connections.set_proven(id);
        }
        assert_eq!(
            connections.accepts_at(at(700)),
            at(1_500),
            "a second since the listener is full"
        );
        assert_eq!(connections.accepts_at(at(1_600)), at(1_500), "and then it is refused");
        assert_eq!(connections.connect("2.2.2.2", 1_600), Admission::Refused);
        connections.closed(2);
        assert_eq!(connections.accepts_at(at(1_700)), at(1_700));
        assert!(matches!(connections.connect("2.2.2.2", 1_700), Admission::Admitted(_)));
    }
}
