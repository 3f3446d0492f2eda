//! TLS and login.
// proves U3

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use highwater_access::{Resource, Right};
use highwater_kafka::client::{ConnectError, Login, Options, Remote, trust};
use highwater_kafka::{Authorizer, Identity, same_secret};
use highwater_log::{Log, MemoryLog};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::cluster::*;

const CERTIFICATE: &[u8] = include_bytes!("../data/localhost.crt");
const KEY: &[u8] = include_bytes!("../data/localhost.key");

struct OneUser;

impl Authorizer for OneUser {
    fn login(&self, user: &str, password: &str) -> Option<Identity> {
        let good = user == "app" && same_secret(password, "s3cret");
        good.then(|| Identity::new(user))
    }

    fn may(&self, who: &Identity, _: Right, _: Resource<'_>) -> bool {
        who.name() == "app"
    }
}

async fn guarded() -> TestCluster {
    let log = Arc::new(MemoryLog::new(|| 0));
    cluster_over(log, Arc::new(AtomicI64::new(0)), |options, services| {
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let tls = rustls::ServerConfig::builder()
            .with_no_client_auth()
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

async fn log_in(cluster: &TestCluster, password: &str, pem: &[u8]) -> Result<Remote, ConnectError> {
    let (user, password) = ("app".into(), password.into());
    let server = format!("localhost:{}", cluster.proxy.address.port());
    connect(Options {
        tls: Some(trust(pem).unwrap()),
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
    let other = include_bytes!("../data/other.crt");
    let error = log_in(&cluster, "s3cret", other).await.err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
}
