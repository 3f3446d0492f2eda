//! TLS for listeners. Their certificates, and the authorities of client certificates, are read again when the files
//! change.

use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use highwater_env::disk;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use crate::config::{ClientAuth, TlsSettings};
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
    #[error("client certificates cannot be verified with {}: {reason}", path.display())]
    ClientCa { path: PathBuf, reason: String },
}

/// New connections get the certificate that is in the files.
pub(crate) fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = Certificate::open(settings, &provider)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let Some(client_auth) = &settings.client_auth else {
        let builder = builder.with_no_client_auth();
        return Ok(Arc::new(builder.with_cert_resolver(certificate)));
    };
    let verifier = ClientVerifier::open(client_auth, &provider)?;
    let builder = builder.with_client_cert_verifier(verifier);
    let mut config = builder.with_cert_resolver(certificate);
    // A resumed session would skip the verification of the client's certificate.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The certificate of a listener.
#[derive(Debug)]
struct Certificate {
    files: TlsSettings,
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
        files: &TlsSettings,
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

fn read(files: &TlsSettings, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = read_certificates(&files.cert)?;
    let pem = read_pem(&files.key)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| unreadable(&files.key, &error))?;
    Ok(CertifiedKey::from_der(chain, key, provider)?)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(read_pem(path)?.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| unreadable(path, &error))?;
    match certificates.is_empty() {
        true => Err(TlsError::NoCertificate(path.to_owned())),
        false => Ok(certificates),
    }
}

fn read_pem(path: &Path) -> Result<String, TlsError> {
    disk::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::File {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// Verifies client certificates with the authorities of a file.
#[derive(Debug)]
struct ClientVerifier {
    settings: ClientAuth,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<dyn ClientCertVerifier>>,
}

impl ClientVerifier {
    fn open(
        settings: &ClientAuth,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<ClientVerifier>, TlsError> {
        let watched = WatchedFiles::new(vec![settings.ca.clone()]);
        let verifier = Arc::new(ClientVerifier {
            current: RwLock::new(read_verifier(settings, provider)?),
            settings: settings.clone(),
            provider: provider.clone(),
        });
        watched.watch(&verifier, ClientVerifier::reload);
        Ok(verifier)
    }

    fn reload(&self) -> Result<(), TlsError> {
        let new = read_verifier(&self.settings, &self.provider)?;
        let mut current = self
            .current
            .write()
            .expect("no thread panics with the lock");
        *current = new;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        let current = self.current.read().expect("no thread panics with the lock");
        current.clone()
    }
}

fn read_verifier(
    settings: &ClientAuth,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(&settings.ca)? {
        roots.add(certificate)?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    let builder = match settings.required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    builder
        .build()
        .map_err(|error: VerifierBuilderError| TlsError::ClientCa {
            path: settings.ca.clone(),
            reason: error.to_string(),
        })
}

impl ClientCertVerifier for ClientVerifier {
    fn client_auth_mandatory(&self) -> bool {
        self.settings.required
    }

    /// Empty: a client sends the certificate that it has. The list would be fixed at the start.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.current()
            .verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.current()
            .verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

/// Cryptographically secure random bytes, for secrets.
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
        let files = TlsSettings {
            cert: path("cert.pem"),
            key: path("key.pem"),
            client_auth: None,
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

    const CLIENT_CA: &str = include_str!("../tests/server/http/client_ca.pem");
    const CLIENT: &[u8] = include_bytes!("../tests/server/http/client.pem");

    // proves G4
    #[tokio::test(start_paused = true)]
    async fn the_authorities_of_client_certificates_are_reloaded() {
        let folder = tempfile::tempdir().unwrap();
        let ca = folder.path().join("ca.pem");
        let write = |text: &str| {
            let mut file = disk::create_atomic(&ca).unwrap();
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            file.commit().unwrap();
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let settings = ClientAuth {
            ca: ca.clone(),
            required: true,
        };
        write("no certificate");
        assert!(ClientVerifier::open(&settings, &provider).is_err());
        write(CERTIFICATE);
        let verifier = ClientVerifier::open(&settings, &provider).unwrap();
        let client = CertificateDer::from_pem_slice(CLIENT).unwrap();
        let verify = || verifier.verify_client_cert(&client, &[], UnixTime::now());
        assert!(verify().is_err());
        write(CLIENT_CA);
        tokio::time::sleep(2 * reload::INTERVAL).await;
        assert!(verify().is_ok());
    }
}
