//! Opens a connection: TCP, TLS, the versions of the broker, login.

use std::fmt;
use std::sync::Arc;

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

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

/// A client certificate and its key, in PEM form.
#[derive(Clone, Copy)]
pub struct Identity<'a> {
    pub certificate: &'a [u8],
    pub key: &'a [u8],
}

/// A TLS configuration that trusts the authorities in `pem`. On most systems a file has those of the system, such as
/// `/etc/ssl/certs/ca-certificates.crt`.
pub fn trust(pem: &[u8]) -> Result<Arc<ClientConfig>, String> {
    let config = trusting(pem)?.with_no_client_auth();
    Ok(Arc::new(config))
}

/// The same with a client certificate, for brokers that require one.
pub fn trust_as(pem: &[u8], identity: Identity<'_>) -> Result<Arc<ClientConfig>, String> {
    let chain = CertificateDer::pem_slice_iter(identity.certificate);
    let chain = chain.collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| format!("the client certificate: {error}"))?;
    if chain.is_empty() {
        return Err("no client certificate found".into());
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key);
    let key = key.map_err(|error| format!("the key of the client certificate: {error}"))?;
    let config = trusting(pem)?.with_client_auth_cert(chain, key);
    let config = config.map_err(|error| format!("the client certificate: {error}"))?;
    Ok(Arc::new(config))
}

fn trusting(pem: &[u8]) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| format!("the certificate: {error}"))?;
        // An unusable certificate does not affect the others.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err("no certificate authority found".into());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    Ok(config)
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
    let connected = options.egress.connect(&address.host, address.port).await;
    let stream = connected.map_err(|error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => CallError::Refused(error.to_string()),
        _ => error.into(),
    })?;
    stream.set_nodelay(true)?;
    match &options.tls {
        None => set_up(stream, address, options).await,
        Some(config) => {
            let name = ServerName::try_from(address.host.clone())
                .map_err(|error| CallError::Refused(error.to_string()))?;
            let connector = TlsConnector::from(Arc::clone(config));
            set_up(connector.connect(name, stream).await?, address, options).await
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

    #[test]
    fn a_file_without_an_authority_is_refused() {
        assert!(trust(b"").is_err());
        assert!(trust(b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----").is_err());
        let authority = include_bytes!("../../tests/data/localhost.crt");
        let nobody = Identity {
            certificate: b"",
            key: b"",
        };
        assert!(trust_as(authority, nobody).is_err());
    }
}
