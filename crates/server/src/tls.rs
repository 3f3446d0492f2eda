//! TLS for listeners, whose certificates are read again when their files change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use highwater_env::disk;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::config::TlsFiles;
use crate::reload::WatchedFiles;

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

/// New connections get the certificate that is in the files.
pub(crate) fn server_config(files: &TlsFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = Certificate::open(files, &provider)?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    Ok(Arc::new(config))
}

/// The certificate of a listener.
#[derive(Debug)]
struct Certificate {
    files: TlsFiles,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.read().expect("no thread panics with the lock");
        Some(current.clone())
    }
}

impl Certificate {
    fn open(
        files: &TlsFiles,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<Certificate>, TlsError> {
        let watched = WatchedFiles::new(vec![files.cert.clone(), files.key.clone()]);
        let certificate = Arc::new(Certificate {
            current: RwLock::new(Arc::new(read(files, provider)?)),
            files: files.clone(),
            provider: provider.clone(),
        });
        watched.watch(&certificate, Certificate::reload);
        Ok(certificate)
    }

    fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(read(&self.files, &self.provider)?);
        *self
            .current
            .write()
            .expect("no thread panics with the lock") = new;
        Ok(())
    }
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
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
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

/// Bytes that nobody can guess, for secrets.
pub(crate) fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let random = rustls::crypto::ring::default_provider().secure_random;
    let failed = |_| std::io::Error::other("the system gives no random numbers");
    random.fill(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reload;

    const CERTIFICATE: &str = include_str!("../tests/server/http/cert.pem");
    const KEY: &str = include_str!("../tests/server/http/key.pem");

    // proves G4
    #[tokio::test(start_paused = true)]
    async fn a_changed_certificate_is_reloaded_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            let mut file = disk::create_atomic(path(name)).unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            file.commit().unwrap();
        };
        write("cert.pem", CERTIFICATE);
        write("key.pem", KEY);
        let files = TlsFiles {
            cert: path("cert.pem"),
            key: path("key.pem"),
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = Certificate::open(&files, &provider).unwrap();
        let current = || certificate.current.read().unwrap().clone();
        let first = current();
        write("cert.pem", "no certificate");
        tokio::time::sleep(2 * reload::INTERVAL).await;
        assert!(Arc::ptr_eq(&first, &current()));
        write("cert.pem", &format!("{CERTIFICATE}\n{CERTIFICATE}"));
        tokio::time::sleep(2 * reload::INTERVAL).await;
        assert_eq!(current().cert.len(), 2);
    }
}
