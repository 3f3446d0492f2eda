//! Trusted certificate authorities for outgoing connections: those of the system, and those given in settings.

use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// `ca` is one or more certificates in PEM form to trust beside those of the system.
pub fn client(ca: Option<&str>) -> Result<Arc<ClientConfig>, String> {
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
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
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
