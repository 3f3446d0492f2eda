//! TLS and the login.
// proves U3

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use highwater_kafka::client::{ConnectError, Login, Options, Remote, trust};
use highwater_kafka::{Authorizer, Identity, Resource, Right, same_secret};
use highwater_log::{Log, MemoryLog};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::world::*;

const CERTIFICATE: &[u8] = include_bytes!("../data/localhost.crt");
const KEY: &[u8] = include_bytes!("../data/localhost.key");

struct One;

impl Authorizer for One {
    fn login(&self, user: &str, password: &str) -> Option<Identity> {
        let good = user == "app" && same_secret(password, "s3cret");
        good.then(|| Identity::new(user))
    }

    fn may(&self, who: &Identity, _: Right, _: Resource<'_>) -> bool {
        who.name() == "app"
    }
}

async fn guarded() -> World {
    let log = Arc::new(MemoryLog::new(|| 0));
    world_over(log, Arc::new(AtomicI64::new(0)), |options, services| {
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
        services.authorizer = Arc::new(One);
    })
    .await
}

async fn log_in(world: &World, password: &str, pem: &[u8]) -> Result<Remote, ConnectError> {
    let (user, password) = ("app".into(), password.into());
    let server = format!("localhost:{}", world.proxy.address.port());
    connect(Options {
        tls: Some(trust(pem).unwrap()),
        login: Some(Login { user, password }),
        ..Options::new([server])
    })
    .await
}

#[tokio::test]
async fn with_the_right_authority_and_password_everything_works() {
    let world = guarded().await;
    let remote = log_in(&world, "s3cret", CERTIFICATE).await.unwrap();
    remote.create(spec("h", 1)).await.unwrap();
    let partition = remote.partition("h", 0).unwrap();
    assert_eq!(append(&partition, &["a"]).await, 0);
    assert_eq!(stored(&world, "h", 0).await, ["a"]);
}

#[tokio::test]
async fn a_wrong_password_is_told_at_once_and_not_printed() {
    let world = guarded().await;
    let error = log_in(&world, "guess", CERTIFICATE).await.err().unwrap();
    let told = error.to_string();
    assert!(
        told.contains("the login was refused") && !told.contains("guess"),
        "{told}"
    );
}

#[tokio::test]
async fn a_broker_whose_authority_is_not_known_is_not_believed() {
    let world = guarded().await;
    let other = include_bytes!("../data/other.crt");
    let error = log_in(&world, "s3cret", other).await.err().unwrap();
    assert!(error.to_string().contains("certificate"), "{error}");
}
