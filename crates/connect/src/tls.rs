//! Trusted certificate authorities for outgoing connections: those of the system, and those given in settings.

use std::sync::{Arc, OnceLock};

use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

/// `ca` is one or more certificates in PEM form to trust beside those of the system.
pub fn client(ca: Option<&str>) -> Result<Arc<ClientConfig>, String> {
    Ok(Arc::new(trusting(ca)?.with_no_client_auth()))
}

/// The same with a client certificate and its key, in PEM form.
pub(crate) fn client_with_identity(
    ca: Option<&str>,
    certificate: &str,
    key: &str,
) -> Result<Arc<ClientConfig>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("the client certificate: {error}");
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|error| failed(&error))?;
    if chain.is_empty() {
        return Err(failed(&"its file has none"));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
    let key = key.map_err(|error| format!("the key of the client certificate: {error}"))?;
    let config = trusting(ca)?.with_client_auth_cert(chain, key);
    Ok(Arc::new(config.map_err(|error| failed(&error))?))
}

fn trusting(ca: Option<&str>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let mut roots = system_roots().clone();
    for certificate in CertificateDer::pem_slice_iter(ca.unwrap_or_default().as_bytes()) {
        let certificate = certificate.map_err(|error| format!("the certificate: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("the certificate: {error}"))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    Ok(config)
}

/// Read once: there are more than a hundred.
fn system_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        for certificate in rustls_native_certs::load_native_certs().certs {
            // An unusable certificate does not affect the others.
            let _ = roots.add(certificate);
        }
        roots
    })
}
