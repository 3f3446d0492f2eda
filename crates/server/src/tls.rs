//! TLS for listeners. Certificates are read once, at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_env::disk;
use rustls::ServerConfig;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;

/// Why TLS cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    #[error("{} holds no certificate in PEM form", .0.display())]
    NoCertificate(PathBuf),
    #[error("the certificate and the key do not fit: {0}")]
    Mismatch(#[from] rustls::Error),
}

pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, TlsError> {
    Ok(TlsAcceptor::from(server_config(files)?))
}

pub(crate) fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let file = |path: &Path, reason: String| TlsError::File {
        path: path.to_owned(),
        reason,
    };
    let pem = |path: &Path| disk::read_to_string(path).map_err(|e| file(path, e.to_string()));
    let chain = CertificateDer::pem_slice_iter(pem(&files.cert)?.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| file(&files.cert, error.to_string()))?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate(files.cert.clone()));
    }
    let key = PrivateKeyDer::from_pem_slice(pem(&files.key)?.as_bytes())
        .map_err(|error| file(&files.key, error.to_string()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    Ok(Arc::new(config))
}
