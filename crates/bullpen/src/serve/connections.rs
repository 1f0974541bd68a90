//! Who may stay connected: a pure decision over the connections of one listener.
//!
//! A connection is *proven* once it carried a signed request. When seats are short the unproven
//! connection that has been idle longest gives its seat up; a proven one that is being answered never
//! does. One address has a few seats for unproven connections, unless it is a proxy's.
//!
//! Not here: sockets (`http`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bullpen_core::config::stack::Network;

/// How long a connection is left alone before another may have its seat, and how long new ones wait
/// for a seat before they are refused: a sender that means it has sent its request by then.
const SETTLES: Duration = Duration::from_secs(1);

/// What one listener allows.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLimits {
    /// Connections at once.
    pub(super) connections: usize,
    /// Unproven connections of one address at once.
    pub(super) unproven_per_peer: usize,
    /// Addresses for which that does not count.
    pub(super) proxies: Vec<Network>,
}

/// A connection, by its number.
pub(super) type ConnectionId = u64;

/// Where a connection comes from: an address, or of IPv6 the network that one site has whole.
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

#[derive(Clone, Copy, Debug)]
struct Seated {
    peer: Peer,
    is_proven: bool,
    /// Whether a request of it is being read or answered.
    is_busy: bool,
    came: Duration,
    /// When a request of it last began or ended, or when it came.
    since: Duration,
}

impl Seated {
    /// Who gives a seat up first; none if it keeps its seat whatever happens.
    const fn rank(&self) -> Option<u8> {
        match (self.is_proven, self.is_busy) {
            (false, false) => Some(0),
            (false, true) => Some(1),
            (true, false) => Some(2),
            (true, true) => None,
        }
    }

    /// From when on it may have to give its seat up. A stranger does not put that off by asking.
    fn settled_at(&self) -> Option<Duration> {
        let from = if self.is_proven { self.since } else { self.came };
        self.rank().map(|_| from + SETTLES)
    }
}

/// What becomes of a connection that has just come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has a seat.
    Seated(ConnectionId),
    /// It has a seat, and the connection that had one gives it up.
    Instead {
        /// Its seat.
        seat: ConnectionId,
        /// The connection to close.
        closes: ConnectionId,
    },
    /// There is no seat for it.
    Refused,
}

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    bounds: ConnectionLimits,
    seats: BTreeMap<ConnectionId, Seated>,
    next: ConnectionId,
    /// Since when there was no seat to be had.
    full_since: Option<Duration>,
}

impl Connections {
    /// Nobody is connected yet.
    pub(super) fn new(bounds: ConnectionLimits) -> Self {
        Self { bounds, seats: BTreeMap::new(), next: 0, full_since: None }
    }

    /// When the next connection is to be accepted: now, as soon as a seat can be given to it, or,
    /// if none can, after a while, to refuse it.
    pub(super) fn accepts_at(&mut self, now: Duration) -> Duration {
        if self.seats.len() < self.bounds.connections || self.gives_up(now, |_| true).is_some() {
            self.full_since = None;
            return now;
        }
        let full_since = *self.full_since.get_or_insert(now);
        let settles = self.seats.values().filter_map(Seated::settled_at).min();
        settles.unwrap_or(Duration::MAX).min(full_since + SETTLES)
    }

    /// A connection of this address has come.
    pub(super) fn arrives(&mut self, address: IpAddr, now: Duration) -> Admission {
        let peer = Peer::of(address);
        let is_counted = !self.bounds.proxies.iter().any(|proxy| proxy.contains(address));
        let is_own = |seated: &Seated| seated.peer == peer && !seated.is_proven;
        let own = self.seats.values().filter(|seated| is_own(seated)).count();
        let is_over = is_counted && own >= self.bounds.unproven_per_peer;
        let closes = match (is_over, self.seats.len() < self.bounds.connections) {
            (false, true) => None,
            (true, _) => match self.gives_up(now, is_own) {
                Some(seat) => Some(seat),
                None => return Admission::Refused,
            },
            (false, false) => match self.gives_up(now, |_| true) {
                Some(seat) => Some(seat),
                None => return Admission::Refused,
            },
        };
        self.next += 1;
        let seat = self.next;
        let seated = Seated { peer, is_proven: false, is_busy: false, came: now, since: now };
        self.seats.insert(seat, seated);
        match closes {
            Some(closes) => {
                self.seats.remove(&closes);
                Admission::Instead { seat, closes }
            }
            None => Admission::Seated(seat),
        }
    }

    /// The connection that would give its seat up now.
    fn gives_up(&self, now: Duration, may: impl Fn(&Seated) -> bool) -> Option<ConnectionId> {
        let settled = self.seats.iter().filter(|(_, seated)| {
            may(seated) && seated.settled_at().is_some_and(|settled| settled <= now)
        });
        settled.min_by_key(|(seat, it)| (it.rank(), it.since, **seat)).map(|(seat, _)| *seat)
    }

    /// The head of a request is there.
    pub(super) fn asks(&mut self, seat: ConnectionId, now: Duration) {
        self.change(seat, now, |seated| seated.is_busy = true);
    }

    /// The request is signed.
    pub(super) fn proves(&mut self, seat: ConnectionId) {
        if let Some(seated) = self.seats.get_mut(&seat) {
            seated.is_proven = true;
        }
    }

    /// The request is answered.
    pub(super) fn is_answered(&mut self, seat: ConnectionId, now: Duration) {
        self.change(seat, now, |seated| seated.is_busy = false);
    }

    /// The connection is over.
    pub(super) fn leaves(&mut self, seat: ConnectionId) {
        if self.seats.remove(&seat).is_some() {
            self.full_since = None;
        }
    }

    fn change(&mut self, seat: ConnectionId, now: Duration, change: impl FnOnce(&mut Seated)) {
        if let Some(seated) = self.seats.get_mut(&seat) {
            change(seated);
            seated.since = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "10.0.0.1";

    fn crowd(connections: usize, unproven_per_peer: usize) -> Connections {
        let proxies = vec![PROXY.parse().expect("a network")];
        Connections::new(ConnectionLimits { connections, unproven_per_peer, proxies })
    }

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    impl Connections {
        fn comes(&mut self, address: &str, millis: u64) -> Admission {
            self.arrives(address.parse().expect("an address"), at(millis))
        }
    }

    #[test]
    fn the_longest_idle_stranger_gives_its_seat_up() {
        let mut crowd = crowd(3, 9);
        for (number, address) in ["1.1.1.1", "2.2.2.2", "3.3.3.3"].into_iter().enumerate() {
            assert!(matches!(crowd.comes(address, number as u64), Admission::Seated(_)));
        }
        crowd.asks(1, at(5));
        crowd.is_answered(1, at(10));
        let arrival = crowd.comes("4.4.4.4", 5_000);
        assert_eq!(arrival, Admission::Instead { seat: 4, closes: 2 }, "1 was heard of later");
        assert_eq!(crowd.comes("4.4.4.4", 5_000), Admission::Instead { seat: 5, closes: 3 });
        assert_eq!(crowd.comes("4.4.4.4", 5_000), Admission::Instead { seat: 6, closes: 1 });
        assert_eq!(crowd.comes("4.4.4.4", 5_000), Admission::Refused, "the others have just come");
    }

    #[test]
    fn a_slow_request_goes_after_the_idle_and_a_signed_one_stays() {
        let mut crowd = crowd(4, 9);
        for _ in 1..=4 {
            crowd.comes("1.1.1.1", 0);
        }
        for signed in [1, 2] {
            crowd.asks(signed, at(1));
            crowd.proves(signed);
        }
        crowd.is_answered(2, at(2));
        crowd.asks(3, at(3));
        let closed = |crowd: &mut Connections| match crowd.comes("2.2.2.2", 9_000) {
            Admission::Instead { seat, closes } => {
                crowd.asks(seat, at(9_000));
                crowd.proves(seat);
                Some(closes)
            }
            Admission::Seated(_) | Admission::Refused => None,
        };
        assert_eq!(closed(&mut crowd), Some(4), "it says nothing");
        assert_eq!(closed(&mut crowd), Some(3), "it asks, and has not signed");
        assert_eq!(closed(&mut crowd), Some(2), "it has signed, and says nothing");
        assert_eq!(closed(&mut crowd), None, "all are being answered");
        crowd.leaves(1);
        assert!(matches!(crowd.comes("2.2.2.2", 9_000), Admission::Seated(_)));
    }

    /// As a flood does: what they send comes after all seats are taken.
    #[test]
    fn strangers_that_go_on_asking_give_their_seats_up_all_the_same() {
        let mut crowd = crowd(2, 9);
        for _ in 0..2 {
            crowd.comes("1.1.1.1", 0);
        }
        assert_eq!(crowd.accepts_at(at(100)), at(1_000));
        for seat in [1, 2] {
            crowd.asks(seat, at(900));
        }
        assert_eq!(crowd.accepts_at(at(1_000)), at(1_000));
        assert_eq!(crowd.comes("2.2.2.2", 1_000), Admission::Instead { seat: 3, closes: 1 });
    }

    #[test]
    fn one_address_has_a_few_seats_until_it_signs_unless_it_is_a_proxy() {
        let mut crowd = crowd(100, 2);
        crowd.comes("1.1.1.1", 0);
        crowd.comes("1.1.1.1", 0);
        assert_eq!(crowd.comes("1.1.1.1", 10), Admission::Refused);
        assert!(matches!(crowd.comes("1.1.1.2", 10), Admission::Seated(_)), "that is another");
        crowd.proves(1);
        assert!(matches!(crowd.comes("1.1.1.1", 10), Admission::Seated(_)));
        let own = Admission::Instead { seat: 5, closes: 2 };
        assert_eq!(crowd.comes("1.1.1.1", 2_000), own, "its own, and no other's");
        for _ in 0..50 {
            assert!(matches!(crowd.comes(PROXY, 2_000), Admission::Seated(_)));
        }
        crowd.comes("2001:db8::1", 2_000);
        crowd.comes("2001:db8::2", 2_000);
        assert_eq!(crowd.comes("2001:db8::3", 2_000), Admission::Refused, "a site has them all");
        assert!(matches!(crowd.comes("2001:db8:0:1::1", 2_000), Admission::Seated(_)));
    }

    #[test]
    fn new_ones_wait_for_a_seat_before_they_are_refused() {
        let mut crowd = crowd(2, 9);
        assert_eq!(crowd.accepts_at(at(0)), at(0));
        crowd.comes("1.1.1.1", 0);
        crowd.comes("1.1.1.1", 400);
        assert_eq!(crowd.accepts_at(at(500)), at(1_000), "the first has settled by then");
        for seat in [1, 2] {
            crowd.asks(seat, at(600));
            crowd.proves(seat);
        }
        assert_eq!(crowd.accepts_at(at(700)), at(1_500), "a second since there was no seat");
        assert_eq!(crowd.accepts_at(at(1_600)), at(1_500), "and then it is refused");
        assert_eq!(crowd.comes("2.2.2.2", 1_600), Admission::Refused);
        crowd.leaves(2);
        assert_eq!(crowd.accepts_at(at(1_700)), at(1_700));
        assert!(matches!(crowd.comes("2.2.2.2", 1_700), Admission::Seated(_)));
    }
}
