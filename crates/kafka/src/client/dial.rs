//! Opens a connection: TCP, TLS, the versions of the broker, login.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::connection::{CallError, CallOptions, Connection};
use super::options::{Login, Options};
use super::versions::Versions;
use crate::codes::OK;
use crate::handlers::text;

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

/// A TLS configuration that trusts the authorities in `pem`. On most systems a file has those of the system, such as
/// `/etc/ssl/certs/ca-certificates.crt`.
pub fn trust(pem: &[u8]) -> Result<Arc<ClientConfig>, String> {
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
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
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
    connection.set_versions(Versions::new(
        ranges.map(|range| (range.api_key, range.min_version, range.max_version)),
    ));
    if let Some(login) = &options.login {
        log_in(&connection, call, login).await?;
    }
    Ok(Arc::new(connection))
}

async fn log_in(
    connection: &Connection,
    options: CallOptions<'_>,
    login: &Login,
) -> Result<(), CallError> {
    let handshake = connection
        .call(options, |_| {
            SaslHandshakeRequest::default().with_mechanism(text("PLAIN"))
        })
        .await?;
    if handshake.error_code != OK {
        let supported: Vec<_> = handshake
            .mechanisms
            .iter()
            .map(|name| name.as_str())
            .collect();
        let reason = format!(
            "PLAIN is not supported; supported mechanisms: {}",
            supported.join(", ")
        );
        return Err(CallError::Refused(reason));
    }
    let token = Bytes::from(format!("\0{}\0{}", login.user, login.password));
    let response = connection
        .call(options, |_| {
            SaslAuthenticateRequest::default().with_auth_bytes(token.clone())
        })
        .await?;
    match response.error_code {
        OK => Ok(()),
        code => {
            let error = response.error_message.map(|error| error.to_string());
            let error = error.unwrap_or_else(|| super::errors::code_from(code).to_string());
            Err(CallError::Refused(format!(
                "the login was refused: {error}"
            )))
        }
    }
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
    }
}
