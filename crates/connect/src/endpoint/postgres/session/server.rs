//! The addresses of the server, checked before anything is sent to them.

use std::net::{IpAddr, SocketAddr};

use highwater_env::EgressPolicy;
use tokio::net::TcpStream;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

use super::Failure;

const PORT: u16 = 5432;

const NEEDS_TLS: &str = "would send the password and all rows unencrypted: write sslmode=require in the \
    connection, or sslmode=disable to say so";

/// The configuration with the addresses that its hosts resolve to, all of which the egress policy allows. Without TLS
/// only loopback is accepted, unless the connection says `sslmode=disable`.
pub(super) async fn resolved(mut config: Config, egress: &EgressPolicy) -> Result<Config, Failure> {
    let given = config.get_hostaddrs().to_vec();
    let mut names = Vec::new();
    for host in config.get_hosts() {
        match host {
            Host::Tcp(name) => names.push(name.clone()),
            #[cfg(unix)]
            Host::Unix(_) if egress.is_restricted() => {
                let reason = "a socket of this machine: only jobs of the settings may use one";
                return Err(Failure::Unfit(reason.into()));
            }
            #[cfg(unix)]
            Host::Unix(_) if config.get_hosts().len() > 1 || !given.is_empty() => {
                let reason = "a socket of this machine: it must be the only host";
                return Err(Failure::Unfit(reason.into()));
            }
            #[cfg(unix)]
            Host::Unix(_) => return Ok(config),
        }
    }
    if !given.is_empty() {
        names = given.iter().map(IpAddr::to_string).collect();
    }
    let mut addresses = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let ports = config.get_ports();
        let port = ports.get(index).or(ports.first());
        let found = egress.resolve(name, port.copied().unwrap_or(PORT)).await;
        let found = found.map_err(|error| match error.kind() {
            std::io::ErrorKind::PermissionDenied => Failure::Unfit(error.to_string()),
            _ => Failure::Unavailable(format!("cannot find {name}: {error}")),
        })?;
        let is_local = found.iter().all(|address| address.ip().is_loopback());
        if config.get_ssl_mode() == SslMode::Prefer && !is_local {
            let reason = format!("a connection to {name} {NEEDS_TLS}");
            return Err(Failure::Unfit(reason));
        }
        addresses.extend(first_open(&found).await);
    }
    if given.is_empty() {
        // The names remain for TLS.
        for address in addresses {
            config.hostaddr(address);
        }
    }
    Ok(config)
}

/// The first address that accepts connections, or else the first: the library takes one address per host.
async fn first_open(addresses: &[SocketAddr]) -> Option<IpAddr> {
    if let [first, _, ..] = addresses {
        for address in addresses {
            if TcpStream::connect(address).await.is_ok() {
                return Some(address.ip());
            }
        }
        return Some(first.ip());
    }
    addresses.first().map(SocketAddr::ip)
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use super::*;

    async fn refusal(connection: &str, egress: &EgressPolicy) -> Option<String> {
        let config = Config::from_str(connection).unwrap();
        match resolved(config, egress).await {
            Ok(_) => None,
            Err(Failure::Unfit(reason)) => Some(reason),
            Err(_) => panic!("{connection} is not resolved"),
        }
    }

    // proves G3
    #[tokio::test]
    async fn without_tls_only_loopback_is_accepted_unless_the_connection_says_so() {
        let open = EgressPolicy::default();
        assert_eq!(refusal("postgres://u@127.0.0.1/d", &open).await, None);
        assert_eq!(refusal("host=/run/postgresql user=u", &open).await, None);
        let remote = refusal("postgres://u:hidden@192.0.2.7/d", &open).await;
        let remote = remote.expect("a password beyond this machine");
        assert!(remote.contains("sslmode=require") && !remote.contains("hidden"));
        for mode in ["require", "disable"] {
            let connection = format!("postgres://u@192.0.2.7/d?sslmode={mode}");
            assert_eq!(refusal(&connection, &open).await, None, "{mode}");
        }
    }

    // proves G3
    #[tokio::test]
    async fn the_egress_policy_decides_about_the_address_of_the_server() {
        let users = EgressPolicy::default().restricted();
        let own = refusal("postgres://u@127.0.0.1/d", &users).await;
        assert!(own.is_some_and(|reason| reason.contains("egress.allow")));
        let socket = refusal("host=/run/postgresql user=u", &users).await;
        assert!(socket.is_some_and(|reason| reason.contains("a socket of this machine")));
        let operator = EgressPolicy::default();
        for mixed in [
            "host=/run/postgresql,169.254.169.254 sslmode=require",
            "host=169.254.169.254,/run/postgresql sslmode=require",
            "host=/run/postgresql hostaddr=169.254.169.254 sslmode=require",
        ] {
            assert!(refusal(mixed, &operator).await.is_some(), "{mixed}");
        }
        for metadata in [
            "host=db.example hostaddr=169.254.169.254",
            "hostaddr=169.254.169.254",
        ] {
            let metadata = format!("{metadata} sslmode=require");
            assert!(refusal(&metadata, &users).await.is_some(), "{metadata}");
        }
    }
}
