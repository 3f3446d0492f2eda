//! Opens a connection: TCP, TLS, the versions of the broker, login.

use std::fmt;
use std::sync::Arc;

use highwater_net::tls;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{CallError, CallOptions, Connection};
use super::options::Options;
use super::sasl;
use super::versions::Versions;
use crate::codes::OK;

/// The address of a broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub host: String,
    pub port: u16,
}

impl Address {
    /// Parses `host:port`; an IPv6 address may be in brackets.
    pub(super) fn parse(server: &str) -> Option<Address> {
        let (host, port) = server.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| Address {
            host: host.into(),
            port,
        })
    }

    /// An address in a response.
    pub(super) fn of(host: &str, port: i32) -> Option<Address> {
        let port = u16::try_from(port).ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| Address {
            host: host.into(),
            port,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(super) async fn dial(
    address: &Address,
    options: &Arc<Options>,
) -> Result<Arc<Connection>, CallError> {
    let opened = tokio::time::timeout(options.request_timeout, open(address, options));
    opened
        .await
        .unwrap_or_else(|_| Err(CallError::Lost("connecting timed out".into())))
        .map_err(|error| error.with(address))
}

async fn open(address: &Address, options: &Arc<Options>) -> Result<Arc<Connection>, CallError> {
    let stream = options.egress.connect(&address.host, address.port);
    let stream = stream.await?;
    stream.set_nodelay(true)?;
    match &options.tls {
        None => set_up(stream, address, options).await,
        Some(config) => {
            let stream = tls::connect(Arc::clone(config), &address.host, stream);
            set_up(stream.await?, address, options).await
        }
    }
}

async fn set_up(
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    address: &Address,
    options: &Arc<Options>,
) -> Result<Arc<Connection>, CallError> {
    let first = Versions::new([(ApiKey::ApiVersions as i16, 0, 0)]);
    let mut connection = Connection::start(stream, address, options, first);
    let call = CallOptions::with_timeout(options.request_timeout);
    let versions = connection
        .call(call, |_| ApiVersionsRequest::default())
        .await?;
    if versions.error_code != OK {
        let code = Code::Unknown(versions.error_code);
        return Err(CallError::Refused(format!("ApiVersions failed: {code}")));
    }
    let ranges = versions.api_keys.iter();
    connection.set_versions(Versions::new(ranges.map(|range| {
        let key = ApiKey::try_from(range.api_key);
        let max = key.map_or(i16::MAX, |key| options.profile.version_max(key));
        let max = max.min(range.max_version);
        (range.api_key, range.min_version, max)
    })));
    if let Some(lifetime) = sasl::log_in(&connection, call, options).await? {
        connection.expire_after(lifetime);
    }
    Ok(Arc::new(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        let shown = |server: &str| Address::parse(server).map(|address| address.to_string());
        assert_eq!(shown("broker-1:9092").as_deref(), Some("broker-1:9092"));
        assert_eq!(shown("[::1]:9092").as_deref(), Some("::1:9092"));
        for wrong in ["broker", ":9092", "broker:", "broker:x", "broker:70000"] {
            assert_eq!(shown(wrong), None, "{wrong}");
        }
        assert_eq!(Address::of("a", -1), None);
        assert_eq!(Address::of("", 1), None);
    }
}
