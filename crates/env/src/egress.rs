//! The egress policy: which addresses webhooks, workflow steps and outputs may connect to.
//!
//! Without a list every host is allowed. With one, only the listed hosts and networks are, and loopback for the
//! operator's own definitions. Link-local and metadata addresses need to be listed themselves: they hand out the
//! credentials of the machine. The check is on the resolved address, and the connection goes to the address that was
//! checked, so no DNS answer bypasses it.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::{TcpStream, lookup_host};

/// Clones share the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Empty: every host.
    allow: Arc<[EgressRule]>,
    /// For definitions of users: loopback must be listed.
    restricted: bool,
    /// [`CREDENTIAL_SERVICES`] need not be listed.
    credential_services: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum EgressRule {
    Host(String),
    /// `*.example.com`, stored as `.example.com`.
    Subdomains(String),
    Network {
        address: IpAddr,
        bits: u8,
    },
}

/// Addresses that give out credentials of the machine or reach its neighbours without a route.
const SPECIAL: &[EgressRule] = &[
    network(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    network(IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    network(IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
    network(IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    network(
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
        128,
    ),
];

/// Where a machine gets its credentials from, in the clouds that object stores belong to.
const CREDENTIAL_SERVICES: &[EgressRule] = &[
    network(IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)), 32),
    network(IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)), 32),
    network(IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)), 32),
    network(
        IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
        128,
    ),
];

const fn network(address: IpAddr, bits: u8) -> EgressRule {
    EgressRule::Network { address, bits }
}

impl EgressPolicy {
    /// Hosts, `*.` and a domain, addresses, and networks such as `10.0.0.0/8`. The error is the entry that is none of
    /// them.
    pub fn new(allow: &[String]) -> Result<EgressPolicy, String> {
        let rules = allow.iter().map(|text| EgressRule::parse(text).ok_or(text));
        let rules: Result<Vec<EgressRule>, &String> = rules.collect();
        Ok(EgressPolicy {
            allow: rules.map_err(Clone::clone)?.into(),
            ..EgressPolicy::default()
        })
    }

    /// The same list for definitions of users, which reach loopback only if it is listed.
    #[must_use]
    pub fn restricted(&self) -> EgressPolicy {
        EgressPolicy {
            restricted: true,
            ..self.clone()
        }
    }

    /// The same list for a client that gets the credentials of the machine by itself.
    #[must_use]
    pub fn with_credential_services(&self) -> EgressPolicy {
        EgressPolicy {
            credential_services: true,
            ..self.clone()
        }
    }

    pub fn is_restricted(&self) -> bool {
        self.restricted
    }

    /// Whether a connection to `host`, which resolves to `address`, is allowed.
    pub fn allows(&self, host: &str, address: IpAddr) -> bool {
        let address = canonical(address);
        let lists = |rules: &[EgressRule]| rules.iter().any(|rule| rule.contains(address));
        if lists(&self.allow) {
            return true;
        }
        if lists(SPECIAL) {
            return self.credential_services && lists(CREDENTIAL_SERVICES);
        }
        let named = |rule: &EgressRule| rule.names(host);
        if address.is_loopback() || address.is_unspecified() {
            // A subdomain of a listed one may belong to a user.
            let exact = |rule: &&EgressRule| matches!(rule, EgressRule::Host(_));
            return !self.restricted || self.allow.iter().filter(exact).any(named);
        }
        self.allow.is_empty() || self.allow.iter().any(named)
    }

    /// The addresses of `host` that may be connected to. An error of the kind `PermissionDenied` if there are others
    /// only.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let found: Vec<SocketAddr> = lookup_host((host, port)).await?.collect();
        let allowed = found.iter().filter(|found| self.allows(host, found.ip()));
        let allowed: Vec<SocketAddr> = allowed.copied().collect();
        match (allowed.is_empty(), found.first()) {
            (false, _) => Ok(allowed),
            (true, None) => Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("{host} has no address"),
            )),
            (true, Some(refused)) => Err(refusal(host, refused.ip())),
        }
    }

    /// An error of the kind `PermissionDenied` unless a connection to `host` at `address` is allowed.
    pub fn check(&self, host: &str, address: IpAddr) -> io::Result<()> {
        match self.allows(host, address) {
            true => Ok(()),
            false => Err(refusal(host, address)),
        }
    }

    /// Connects to the first allowed address that accepts.
    pub async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut failed = None;
        for address in self.resolve(host, port).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }
}

fn refusal(host: &str, address: IpAddr) -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!("the egress policy does not allow {host} ({address}): list it in egress.allow"),
    )
}

impl EgressRule {
    fn parse(text: &str) -> Option<EgressRule> {
        if let Ok(address) = text.parse::<IpAddr>() {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            return Some(network(canonical(address), bits));
        }
        if let Some((address, bits)) = text.split_once('/') {
            let (address, bits) = (address.parse().ok()?, bits.parse().ok()?);
            let most = if matches!(address, IpAddr::V4(_)) {
                32
            } else {
                128
            };
            return (bits <= most).then(|| network(address, bits));
        }
        let (name, subdomains) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_name = !name.is_empty() && name.chars().all(plain) && !name.starts_with('.');
        let name = name.to_ascii_lowercase();
        is_name.then(|| match subdomains {
            true => EgressRule::Subdomains(format!(".{name}")),
            false => EgressRule::Host(name),
        })
    }

    fn contains(&self, address: IpAddr) -> bool {
        let EgressRule::Network { address: of, bits } = self else {
            return false;
        };
        let shifted = |address: u128, all: u32| {
            let shift = all - u32::from(*bits);
            address.checked_shr(shift).unwrap_or(0)
        };
        match (of, address) {
            (IpAddr::V4(of), IpAddr::V4(address)) => {
                shifted(of.to_bits().into(), 32) == shifted(address.to_bits().into(), 32)
            }
            (IpAddr::V6(of), IpAddr::V6(address)) => {
                shifted(of.to_bits(), 128) == shifted(address.to_bits(), 128)
            }
            _ => false,
        }
    }

    fn names(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        match self {
            EgressRule::Host(name) => *name == host,
            EgressRule::Subdomains(domain) => host.ends_with(domain.as_str()),
            EgressRule::Network { .. } => false,
        }
    }
}

/// IPv4 addresses inside IPv6 ones, mapped or of NAT64, count as what they reach.
fn canonical(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address.to_canonical() else {
        return address.to_canonical();
    };
    match v6.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            let bits = u32::from(high) << 16 | u32::from(low);
            IpAddr::V4(Ipv4Addr::from_bits(bits))
        }
        _ => IpAddr::V6(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> EgressPolicy {
        let allow: Vec<String> = allow.iter().map(|entry| (*entry).to_owned()).collect();
        EgressPolicy::new(&allow).unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    // proves G3
    #[test]
    fn metadata_addresses_need_to_be_listed_whatever_the_name_says() {
        let metadata = [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "168.63.129.16",
        ];
        for address in metadata {
            for policy in [
                policy(&[]),
                policy(&["cloud.example", "*.example", "10.0.0.0/8"]),
            ] {
                assert!(!policy.allows("cloud.example", ip(address)), "{address}");
            }
        }
        let listed = policy(&["169.254.169.254"]);
        assert!(listed.allows("cloud.example", ip("::ffff:169.254.169.254")));
        assert!(!listed.allows("cloud.example", ip("169.254.169.253")));
        let store = policy(&["10.0.0.0/8"]).with_credential_services();
        assert!(store.allows("169.254.169.254", ip("169.254.169.254")));
        assert!(!store.allows("169.254.0.1", ip("169.254.0.1")));
    }

    #[test]
    fn a_list_allows_hosts_subdomains_and_networks_and_nothing_else() {
        let policy = policy(&[
            "hooks.example",
            "*.shop.example",
            "10.1.0.0/16",
            "2001:db8::/32",
        ]);
        assert!(policy.allows("Hooks.Example.", ip("192.0.2.1")));
        assert!(policy.allows("a.b.shop.example", ip("192.0.2.1")));
        assert!(policy.allows("any", ip("10.1.255.9")) && policy.allows("any", ip("2001:db8::1")));
        for (host, address) in [
            ("shop.example", "192.0.2.1"),
            ("evilshop.example", "192.0.2.1"),
            ("a.hooks.example", "192.0.2.1"),
            ("any", "10.2.0.1"),
        ] {
            assert!(!policy.allows(host, ip(address)), "{host} {address}");
        }
        for wrong in ["", "*.", "a b", "10.0.0.0/33", "http://x", ".x"] {
            assert_eq!(
                EgressPolicy::new(&[wrong.to_owned()]),
                Err(wrong.to_owned())
            );
        }
    }

    #[test]
    fn loopback_is_the_operators_and_of_others_only_if_it_is_listed() {
        for address in ["127.0.0.1", "::1", "0.0.0.0", "127.8.8.8"] {
            let open = policy(&[]);
            assert!(open.allows("localhost", ip(address)));
            assert!(
                !open.restricted().allows("localhost", ip(address)),
                "{address}"
            );
            let listed = policy(&["localhost", "*.example"]).restricted();
            assert!(listed.allows("localhost", ip(address)));
            assert!(!listed.allows("rebound.example", ip(address)));
        }
        let network = policy(&["127.0.0.0/8"]).restricted();
        assert!(network.allows("rebound.example", ip("127.0.0.1")));
    }

    #[tokio::test]
    async fn a_refused_address_is_never_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let open = policy(&[]);
        assert!(open.connect("localhost", port).await.is_ok());
        let refused = open
            .restricted()
            .connect("localhost", port)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("egress.allow"), "{refused}");
    }
}
