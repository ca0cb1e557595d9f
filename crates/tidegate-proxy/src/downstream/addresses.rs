//! Connections by the address they come from, so that one client cannot take all of them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Bits of an IPv6 address that are its owner's network: one client has all addresses of it.
const V6_NETWORK: u128 = !0 << 64;

/// Open connections by address. Bounded by the connections that are open.
#[derive(Debug)]
pub(crate) struct Addresses {
    most: Option<usize>,
    open: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Addresses {
    /// At most `most` from each; `None` does not count.
    pub(crate) fn new(most: Option<usize>) -> Arc<Self> {
        Arc::new(Self { most, open: Mutex::default() })
    }

    /// Counts a connection from `address`; `Err` if it has too many.
    pub(crate) fn count(self: &Arc<Self>, address: IpAddr) -> Result<Option<Counted>, ()> {
        let Some(most) = self.most else { return Ok(None) };
        let address = owner(address);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= most {
            return Err(());
        }
        *count += 1;
        Ok(Some(Counted { addresses: Arc::clone(self), address }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.addresses.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

fn owner(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & V6_NETWORK).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_count_which_is_given_back() {
        let addresses = Addresses::new(Some(2));
        let of = |text: &str| addresses.count(text.parse().unwrap());
        let held = (of("192.0.2.1").unwrap(), of("192.0.2.1").unwrap());
        assert!(of("192.0.2.1").is_err());
        assert!(of("::ffff:192.0.2.1").is_err(), "the same written otherwise");
        assert!(of("192.0.2.2").is_ok());
        drop(held);
        assert!(of("192.0.2.1").is_ok());
        assert!(addresses.open.lock().is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let addresses = Addresses::new(Some(1));
        let _held = addresses.count("2001:db8::1".parse().unwrap()).unwrap();
        assert!(addresses.count("2001:db8::2".parse().unwrap()).is_err());
        assert!(addresses.count("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
