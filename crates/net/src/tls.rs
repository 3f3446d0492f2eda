//! TLS of clients: the authorities that they trust, their own certificate, and the handshake. Certificates and keys are
//! texts in PEM form.

use std::io;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::listener::Stream;

/// A client certificate, with the certificates of its issuers, and its key.
#[derive(Clone)]
pub struct Identity {
    pub certificate: String,
    pub key: String,
}

/// Trusts the authorities of the system and those in `pem`, which may be empty.
pub fn trust_system_and(
    pem: &str,
    identity: Option<&Identity>,
) -> Result<Arc<ClientConfig>, String> {
    let mut roots = system_roots().clone();
    for certificate in certificates(pem, "the certificate")? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("the certificate: {error}"))?;
    }
    config(roots, identity)
}

/// Trusts the authorities in `pem` alone. A file with those of the system may have some that cannot be used, which do
/// not affect the others.
pub fn trust_only(pem: &str, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(pem, "the certificate")?);
    match roots.is_empty() {
        true => Err("no certificate authority found".into()),
        false => config(roots, identity),
    }
}

/// Encrypts a connection to `host`, which may be an IPv6 address in brackets. A name that no certificate can have is an
/// error of the kind `InvalidInput`.
pub async fn connect<S: Stream>(
    config: Arc<ClientConfig>,
    host: &str,
    stream: S,
) -> io::Result<TlsStream<S>> {
    let host = host.trim_matches(['[', ']']).to_owned();
    let name = ServerName::try_from(host)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    TlsConnector::from(config).connect(name, stream).await
}

fn config(roots: RootCertStore, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let Some(identity) = identity else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let chain = certificates(&identity.certificate, "the client certificate")?;
    if chain.is_empty() {
        return Err("the client certificate: the file has no certificate".into());
    }
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    let key = key.map_err(|error| match error {
        pem::Error::NoItemsFound => {
            "the key of the client certificate: the file has no private key".into()
        }
        error => format!("the key of the client certificate: {error}"),
    })?;
    let config = builder.with_client_auth_cert(chain, key);
    let config = config.map_err(|error| format!("the client certificate: {error}"))?;
    Ok(Arc::new(config))
}

/// An error begins with `role`.
fn certificates(pem: &str, role: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>();
    certificates.map_err(|error| format!("{role}: {error}"))
}

/// Read once: there are more than a hundred.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // An unusable certificate does not affect the others.
        let _ = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots
    })
}
