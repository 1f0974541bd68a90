//! A network by its address and prefix: `10.0.0.1` or `10.0.0.0/8`.
//!
//! Not here: which networks are trusted (`[listeners]`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// The loopback addresses.
    pub const LOOPBACK: [Self; 2] = [
        Self { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), bits: 8 },
        Self { address: IpAddr::V6(Ipv6Addr::LOCALHOST), bits: 128 },
    ];

    /// Whether an address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let is_equal = |own: u128, other: u128, width: u32| {
            let rest = width - self.bits;
            rest == width || own >> rest == other >> rest
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                is_equal(u32::from(own).into(), u32::from(other).into(), 32)
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => is_equal(own.into(), other.into(), 128),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// The text is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoNetwork;

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Self, NoNetwork> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| NoNetwork)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(width), str::parse).map_err(|_| NoNetwork)?;
        if bits > width { Err(NoNetwork) } else { Ok(Self { address, bits }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(network: &str, address: &str) -> bool {
        let network: Network = network.parse().expect("a network");
        network.contains(address.parse().expect("an address"))
    }

    #[test]
    fn addresses_are_compared_by_their_first_bits() {
        assert!(has("10.0.0.0/8", "10.255.1.2") && !has("10.0.0.0/8", "11.0.0.0"));
        assert!(has("10.0.0.1", "10.0.0.1") && !has("10.0.0.1", "10.0.0.2"));
        assert!(
            has("10.0.0.1", "::ffff:10.0.0.1"),
            "a listener on [::] sees IPv4 addresses in this form"
        );
        assert!(has("2001:db8::/32", "2001:db8:1::1") && !has("2001:db8::/32", "2001:db9::1"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
        for bad in ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0", "proxy", "::/129", "10.0.0.0/-1"] {
            assert_eq!(bad.parse::<Network>(), Err(NoNetwork), "{bad}");
        }
        let is_loopback = |text: &str| {
            let address: IpAddr = text.parse().expect("an address");
            Network::LOOPBACK.iter().any(|network| network.contains(address))
        };
        assert!(is_loopback("127.0.0.9") && is_loopback("::1") && !is_loopback("::2"));
    }
}
