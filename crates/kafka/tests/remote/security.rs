//! TLS and login.
// proves U3

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use highwater_access::{Resource, Right, ScramHash, ScramVerifier, TokenError};
use highwater_env::{Clock, RealClock};
use highwater_kafka::client::{ConnectError, Login, Mechanism, Options, Remote, TokenSource};
use highwater_kafka::{Authorizer, Identity, Session, same_secret};
use highwater_log::{BoxFuture, Log, MemoryLog};
use highwater_net::tls;
use kafka_protocol::messages::ApiKey;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::cluster::*;

const CERTIFICATE: &str = include_str!("../data/localhost.crt");
const KEY: &str = include_str!("../data/localhost.key");

struct OneUser;

impl Authorizer for OneUser {
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<Identity>> {
        let good = user == "app" && same_secret(password, "s3cret");
        Box::pin(std::future::ready(good.then(|| Identity::new(user))))
    }

    fn scram_verifiers(&self, user: &str, hash: ScramHash) -> Vec<ScramVerifier> {
        let verifier =
            (user == "app").then(|| ScramVerifier::new(hash, b"s3cret", b"salt of app", 4096));
        verifier.into_iter().collect()
    }

    fn accepts_tokens(&self) -> bool {
        true
    }

    /// A valid token is `token-` and the seconds until it expires.
    fn verify_token(&self, token: &str) -> BoxFuture<Result<Session, TokenError>> {
        let seconds = token.strip_prefix("token-").map(str::parse::<i64>);
        let session = match seconds {
            Some(Ok(seconds)) => Ok(Session {
                identity: Identity::new("app"),
                expires_ms: Some(RealClock::new().unix_millis() + seconds * 1_000),
            }),
            _ => Err(TokenError::Signature),
        };
        Box::pin(std::future::ready(session))
    }

    fn certificate_session(&self, certificate: &[u8]) -> Option<Session> {
        let own = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        (certificate == &*own).then(|| Session::new(Identity::new("app")))
    }

    fn may(&self, who: &Identity, _: Right, _: Resource<'_>) -> bool {
        who.name() == "app"
    }
}

async fn guarded() -> TestCluster {
    cluster_with_tls(false).await
}

async fn cluster_with_tls(wants_certificates: bool) -> TestCluster {
    let log = Arc::new(MemoryLog::new(|| 0));
    cluster_over(log, Arc::new(AtomicI64::new(0)), |options, services| {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
        let verifier = match wants_certificates {
            true => verifier.unwrap(),
            false => WebPkiClientVerifier::no_client_auth(),
        };
        let tls = rustls::ServerConfig::builder()
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = &mut options.listeners[0];
        listener.tls = Some(Arc::new(tls));
        listener.sasl = true;
        options.login_delay = Duration::ZERO;
        services.authorizer = Arc::new(OneUser);
    })
    .await
}

async fn log_in(cluster: &TestCluster, password: &str, pem: &str) -> Result<Remote, ConnectError> {
    let (user, password) = ("app".into(), password.into());
    let server = format!("localhost:{}", cluster.proxy.address.port());
    connect(Options {
        tls: Some(tls::trust_only(pem, None).unwrap()),
        login: Some(Login { user, password }),
        ..Options::new([server])
    })
    .await
}

#[tokio::test]
async fn with_the_right_authority_and_password_the_client_connects() {
    let cluster = guarded().await;
    let remote = log_in(&cluster, "s3cret", CERTIFICATE).await.unwrap();
    remote.create(spec("h", 1)).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    assert_eq!(append(&partition, &["a"]).await, 0);
    assert_eq!(stored(&cluster, "h", 0).await, ["a"]);
}

#[tokio::test]
async fn a_wrong_password_fails_immediately_and_is_not_printed() {
    let cluster = guarded().await;
    let error = log_in(&cluster, "guess", CERTIFICATE).await.err().unwrap();
    let error = error.to_string();
    assert!(
        error.contains("the login was refused") && !error.contains("guess"),
        "{error}"
    );
}

#[tokio::test]
async fn a_broker_with_an_unknown_authority_is_refused() {
    let cluster = guarded().await;
    let other = include_str!("../data/other.crt");
    let error = log_in(&cluster, "s3cret", other).await.err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
}

/// Without TLS, so that the proxy sees the requests.
async fn with_logins() -> TestCluster {
    let log = Arc::new(MemoryLog::new(|| 0));
    cluster_over(log, Arc::new(AtomicI64::new(0)), |options, services| {
        options.listeners[0].sasl = true;
        options.login_delay = Duration::ZERO;
        services.authorizer = Arc::new(OneUser);
    })
    .await
}

async fn check_use(cluster: &TestCluster, remote: &Remote) {
    remote.create(spec("h", 1)).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    assert_eq!(append(&partition, &["a"]).await, 0);
    assert_eq!(stored(cluster, "h", 0).await, ["a"]);
}

#[tokio::test]
async fn a_password_is_proved_with_each_hash_and_a_wrong_one_is_refused() {
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        let cluster = with_logins().await;
        let options = |password: &str| Options {
            login: Some(Login {
                user: "app".into(),
                password: password.into(),
            }),
            mechanism: Mechanism::Scram(hash),
            ..cluster.options()
        };
        let remote = connect(options("s3cret")).await.unwrap();
        check_use(&cluster, &remote).await;
        let error = connect(options("guess")).await.err().unwrap().to_string();
        assert!(error.contains("the login was refused"), "{hash:?}: {error}");
        let nobody = Options {
            login: Some(Login {
                user: "nobody".into(),
                password: "s3cret".into(),
            }),
            ..options("")
        };
        assert!(connect(nobody).await.is_err());
    }
}

#[tokio::test]
async fn a_token_is_read_for_each_connection_and_a_wrong_one_is_refused() {
    let cluster = with_logins().await;
    let options = |token: &'static str| Options {
        token: Some(TokenSource::new(move || Ok(token.into()))),
        ..cluster.options()
    };
    let remote = connect(options("token-3600")).await.unwrap();
    check_use(&cluster, &remote).await;
    for wrong in ["guess", "", "token-3600\x01auth=Bearer x"] {
        let error = connect(options(wrong)).await.err().unwrap().to_string();
        let is_shown = !wrong.is_empty() && error.contains(wrong);
        assert!(
            error.contains("the login was refused") && !is_shown,
            "{error}"
        );
    }
    let missing = Options {
        token: Some(TokenSource::new(|| Err("there is no such file".into()))),
        ..cluster.options()
    };
    let error = connect(missing).await.err().unwrap().to_string();
    assert!(error.contains("there is no such file"), "{error}");
}

/// The broker ends a connection whose login has expired; the client replaces it before.
#[tokio::test]
async fn a_login_that_expires_is_renewed_with_the_next_token() {
    let cluster = with_logins().await;
    let tokens = Arc::new(AtomicI64::new(0));
    let count = Arc::clone(&tokens);
    let token = TokenSource::new(move || {
        // The first login ends soon, later ones do not.
        let first = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        Ok(if first { "token-2" } else { "token-3600" }.into())
    });
    let remote = connect(Options {
        token: Some(token),
        ..cluster.options()
    })
    .await
    .unwrap();
    while cluster.proxy.count(ApiKey::SaslHandshake) < 2 {
        // Fails if the broker was faster, and connects again the next time.
        let _ = remote.refresh().await;
        tokio::task::yield_now().await;
    }
    check_use(&cluster, &remote).await;
}

#[tokio::test]
async fn a_client_certificate_is_a_login_where_the_broker_asks_for_one() {
    let cluster = cluster_with_tls(true).await;
    let server = format!("localhost:{}", cluster.proxy.address.port());
    let identity = tls::Identity {
        certificate: CERTIFICATE.into(),
        key: KEY.into(),
    };
    let remote = connect(Options {
        tls: Some(tls::trust_only(CERTIFICATE, Some(&identity)).unwrap()),
        ..Options::new([server.clone()])
    })
    .await
    .unwrap();
    check_use(&cluster, &remote).await;
    let without = connect(Options {
        tls: Some(tls::trust_only(CERTIFICATE, None).unwrap()),
        patience: Duration::from_millis(100),
        ..Options::new([server])
    });
    assert!(without.await.is_err());
}

/// Against another broker, by hand: a listener in `HIGHWATER_KAFKA_SASL`, and `user:password` for each hash in
/// `HIGHWATER_KAFKA_SCRAM_256` and `_512`.
#[tokio::test]
#[ignore = "needs a broker with SCRAM users"]
async fn scram_logins_are_accepted_and_wrong_ones_refused() {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    for (name, hash) in [("256", ScramHash::Sha256), ("512", ScramHash::Sha512)] {
        let login = variable(&format!("HIGHWATER_KAFKA_SCRAM_{name}"));
        let (user, password) = login.split_once(':').unwrap();
        let options = |password: &str| Options {
            login: Some(Login {
                user: user.into(),
                password: password.into(),
            }),
            mechanism: Mechanism::Scram(hash),
            ..Options::new([variable("HIGHWATER_KAFKA_SASL")])
        };
        let remote = connect(options(password)).await.unwrap();
        assert!(remote.refresh().await.is_ok());
        let refused = connect(options("wrong")).await.err().unwrap();
        assert!(refused.to_string().contains("refused"), "{refused}");
    }
}
