//! Delays after wrong keys, so that secrets cannot be guessed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Duration;

/// Addresses with failures that are remembered. With more, the ones that failed longest ago are forgotten.
const ADDRESSES_MAX: usize = 4096;

const DELAY_FIRST: Duration = Duration::from_millis(100);
/// Below the timeouts of common clients, which would otherwise report a lost connection instead of the wrong key.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// An address without failures for this long starts anew.
const FORGET_AFTER: Duration = Duration::from_secs(60);

/// The failed logins of each address. Times are those of a clock that never goes back.
#[derive(Debug, Default)]
pub(crate) struct LoginDelays {
    failures: Mutex<HashMap<IpAddr, Failures>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Duration,
}

impl LoginDelays {
    /// Counts a failed login, and returns how long its answer must wait.
    pub(crate) fn failed(&self, address: IpAddr, now: Duration) -> Duration {
        let network = client_network(address);
        let mut failures = self
            .failures
            .lock()
            .expect("no thread panics with the lock");
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&network) {
            failures.retain(|_, entry| now.saturating_sub(entry.last) < FORGET_AFTER);
            let oldest = failures.iter().min_by_key(|(_, entry)| entry.last);
            if let (true, Some((&oldest, _))) = (failures.len() >= ADDRESSES_MAX, oldest) {
                failures.remove(&oldest);
            }
        }
        let entry = failures.entry(network).or_insert(Failures {
            count: 0,
            last: now,
        });
        if now.saturating_sub(entry.last) >= FORGET_AFTER {
            entry.count = 0;
        }
        let delay = DELAY_FIRST
            .saturating_mul(1 << entry.count.min(16))
            .min(DELAY_MAX);
        entry.count = entry.count.saturating_add(1);
        entry.last = now;
        delay
    }
}

/// The address by which a client without a login is known. A host has as many addresses of version 6 as it likes, but one
/// network of them.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_grows_with_the_failures_of_an_address_and_is_forgotten() {
        let delays = LoginDelays::default();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let seconds = Duration::from_secs;
        assert_eq!(delays.failed(address, seconds(0)), DELAY_FIRST);
        assert_eq!(delays.failed(address, seconds(1)), 2 * DELAY_FIRST);
        assert_eq!(
            delays.failed("10.0.0.2".parse().unwrap(), seconds(1)),
            DELAY_FIRST
        );
        for _ in 0..40 {
            delays.failed(address, seconds(2));
        }
        assert_eq!(delays.failed(address, seconds(2)), DELAY_MAX);
        assert_eq!(delays.failed(address, seconds(62)), DELAY_FIRST);
    }

    #[test]
    fn addresses_of_one_network_count_together_and_the_table_is_bounded() {
        let delays = LoginDelays::default();
        let now = Duration::ZERO;
        delays.failed("2001:db8::1".parse().unwrap(), now);
        let again = delays.failed("2001:db8::2".parse().unwrap(), now);
        assert_eq!(again, 2 * DELAY_FIRST);
        for n in 0..2 * ADDRESSES_MAX as u32 {
            delays.failed(IpAddr::V4(n.into()), now);
        }
        assert_eq!(delays.failures.lock().unwrap().len(), ADDRESSES_MAX);
    }
}
