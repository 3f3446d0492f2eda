//! A quota of producer ids for each client, so that none fills the producer tables of partitions.
//!
//! Any number is a valid producer id, and a partition remembers a bounded number of producers
//! (`highwater_log::producer_states`), and forgets none while it may repeat a batch. A client that used ever
//! new ids would keep the new producers of others out. Kafka has the same problem, and a proposal with the same answer
//! (KIP-936): distinct ids are counted for each user. Clients without a login are distinguished by their network.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwater_access::client_network;

use crate::access::Identity;

/// How long an id counts after its last use: as long as a partition keeps its place.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// After a refusal no new id is accepted for this long. The batches of a refused producer that are in flight are then
/// refused too, and stay in order.
const REFUSAL: Duration = Duration::from_secs(1);

/// Clients whose ids are counted. With more, the least recently active one is forgotten.
const CLIENTS_MAX: usize = 4096;

/// Ids of all clients together, about 5 MB. With more, clients are forgotten likewise.
const IDS_MAX: usize = 100_000;

/// The producer ids that clients have used. Times are those of a clock that never goes back.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    ids_per_client: usize,
    clients: Mutex<Clients>,
}

#[derive(Debug, Default)]
struct Clients {
    usage: HashMap<Client, Usage>,
    ids: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Client {
    User(Arc<str>),
    Network(IpAddr),
}

#[derive(Debug, Default)]
struct Usage {
    /// When each id was last used.
    ids: HashMap<i64, Duration>,
    last: Duration,
    refuses_until: Duration,
}

impl ProducerIds {
    pub(crate) fn new(ids_per_client: usize) -> ProducerIds {
        ProducerIds {
            ids_per_client,
            clients: Mutex::default(),
        }
    }

    /// Counts the use of an id. Returns false if the client has used too many others of late.
    pub(crate) fn admit(&self, user: &Identity, from: IpAddr, id: i64, now: Duration) -> bool {
        let client = match user.is_anonymous() {
            true => Client::Network(client_network(from)),
            false => Client::User(user.shared_name()),
        };
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let Clients { usage, ids } = &mut *clients;
        let used = usage.entry(client).or_default();
        used.last = now;
        if let Some(last) = used.ids.get_mut(&id) {
            *last = now;
            return true;
        }
        if now < used.refuses_until {
            return false;
        }
        if used.ids.len() >= self.ids_per_client {
            let before = used.ids.len();
            used.ids
                .retain(|_, last| now.saturating_sub(*last) < WINDOW);
            *ids -= before - used.ids.len();
        }
        if used.ids.len() >= self.ids_per_client {
            used.refuses_until = now + REFUSAL;
            return false;
        }
        used.ids.insert(id, now);
        *ids += 1;
        clients.limit();
        true
    }
}

impl Clients {
    fn limit(&mut self) {
        while self.usage.len() > CLIENTS_MAX || self.ids > IDS_MAX {
            let oldest = self.usage.iter().min_by_key(|(_, used)| used.last);
            let Some(oldest) = oldest.map(|(client, _)| client.clone()) else {
                return;
            };
            let forgotten = self.usage.remove(&oldest);
            self.ids -= forgotten.map_or(0, |used| used.ids.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn address(n: u32) -> IpAddr {
        IpAddr::V4(n.into())
    }

    fn user(name: &str) -> Identity {
        Identity::new(name)
    }

    // proves G2
    #[test]
    fn a_client_with_ever_new_ids_is_refused_and_others_are_not() {
        let ids = ProducerIds::new(3);
        let admit = |name, id, now| ids.admit(&user(name), address(1), id, now);
        for id in 0..3 {
            assert!(admit("greedy", id, SECOND));
        }
        assert!(!admit("greedy", 3, SECOND));
        assert!(admit("greedy", 0, SECOND), "known ids go on");
        assert!(admit("other", 3, SECOND));
        let anonymous = Identity::anonymous();
        assert!(ids.admit(&anonymous, address(1), 7, SECOND));
    }

    #[test]
    fn ids_count_until_they_have_not_been_used_for_the_window() {
        let ids = ProducerIds::new(2);
        let admit = |id, now| ids.admit(&user("u"), address(1), id, now);
        assert!(admit(1, Duration::ZERO));
        assert!(admit(2, Duration::ZERO));
        assert!(admit(2, SECOND));
        assert!(!admit(3, WINDOW - SECOND));
        assert!(admit(3, WINDOW), "1 counts no more");
        assert!(!admit(4, WINDOW), "2 was used later");
        assert!(admit(4, WINDOW + SECOND));
    }

    #[test]
    fn a_refused_producer_is_refused_for_a_while_so_that_its_batches_stay_in_order() {
        let ids = ProducerIds::new(1);
        let admit = |id, now| ids.admit(&user("u"), address(1), id, now);
        assert!(admit(1, Duration::ZERO));
        assert!(!admit(2, WINDOW - Duration::from_millis(1)));
        assert!(!admit(2, WINDOW), "its first batch was refused just now");
        assert!(admit(2, WINDOW + REFUSAL));
    }

    #[test]
    fn clients_without_a_login_count_by_network_and_the_table_is_bounded() {
        let ids = ProducerIds::new(1);
        let anonymous = Identity::anonymous();
        let admit = |from: &str, id| {
            let from = from.parse().expect("an address");
            ids.admit(&anonymous, from, id, SECOND)
        };
        assert!(admit("2001:db8::1", 1));
        assert!(!admit("2001:db8::2", 2), "the same network");
        assert!(admit("2001:db8:0:1::1", 2));
        for n in 0..2 * CLIENTS_MAX as u32 {
            assert!(ids.admit(&anonymous, address(n), 1, SECOND));
        }
        let clients = ids.clients.lock().expect("no test panicked");
        assert_eq!(clients.usage.len(), CLIENTS_MAX);
        let counted: usize = clients.usage.values().map(|used| used.ids.len()).sum();
        assert_eq!(clients.ids, counted);
    }
}
