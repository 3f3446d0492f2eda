//! Authentication, authorization and TLS.
// proves U3

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::*;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use highwater_access::{
    AuditEvent, Limiter, Quota, Resource, Right, ScramHash, ScramVerifier, TokenError,
};
use highwater_env::SimClock;
use highwater_kafka::{Authorizer, Identity, Session};
use highwater_log::BoxFuture;
use hmac::{Hmac, KeyInit, Mac};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use sha2::{Digest, Sha256, Sha512};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn guarded() -> TestServer {
    start_with(|options, services| {
        options.listeners[0].sasl = true;
        services.authorizer = Arc::new(RightsByName);
    })
    .await
}

fn token(user: &str, password: &str) -> SaslAuthenticateRequest {
    let token = format!("\0{user}\0{password}");
    SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(token))
}

async fn logged_in(server: &TestServer, user: &str) -> Client {
    let mut client = server.connect().await;
    assert_eq!(client.call(2, &token(user, "secret")).await.error_code, 0);
    client
}

#[tokio::test]
async fn the_usual_sequence_logs_a_client_in() {
    let server = guarded().await;
    let mut client = server.connect().await;
    client.call(0, &ApiVersionsRequest::default()).await;
    let kerberos = SaslHandshakeRequest::default().with_mechanism(text("GSSAPI"));
    let response = client.call(1, &kerberos).await;
    assert_eq!(response.error_code, 33);
    let mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"].map(text);
    assert_eq!(response.mechanisms, mechanisms);
    let plain = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(client.call(1, &plain).await.error_code, 0);
    let response = client.call(2, &token("all", "secret")).await;
    assert_eq!((response.error_code, response.session_lifetime_ms), (0, 0));
    client.call(9, &MetadataRequest::default()).await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_answered_late_and_ends_the_connection() {
    let server = guarded().await;
    let mut client = server.connect().await;
    let began = tokio::time::Instant::now();
    let response = client.call(2, &token("all", "wrong")).await;
    assert_eq!(response.error_code, 58);
    assert!(response.error_message.is_some());
    assert!(began.elapsed().as_millis() >= 500);
    assert_eq!(client.receive_frame().await, None);
    assert_eq!(server.metrics().logins_refused, 1);
}

#[tokio::test]
async fn no_other_request_is_answered_before_the_login() {
    let server = guarded().await;
    let mut client = server.connect().await;
    client.send(9, &MetadataRequest::default()).await;
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test]
async fn a_request_sent_right_behind_the_login_is_served_with_its_rights() {
    let server = guarded().await;
    let hub = server.make("t", 1).await;
    let mut client = server.connect().await;
    client.send(2, &token("send", "secret")).await;
    client
        .send(9, &produce(&hub, 9, -1, &[(0, batch(&["a"]))]))
        .await;
    assert_eq!(
        client
            .receive::<SaslAuthenticateRequest>(2)
            .await
            .1
            .error_code,
        0
    );
    let (_, response) = client.receive::<ProduceRequest>(9).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_log_in_is_disconnected() {
    let server = guarded().await;
    let mut client = server.connect().await;
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test]
async fn a_listener_without_authentication_refuses_a_login() {
    let server = start().await;
    let mut client = server.connect().await;
    let plain = SaslHandshakeRequest::default().with_mechanism(text("PLAIN"));
    assert_eq!(client.call(1, &plain).await.error_code, 34);
}

async fn code<R: Request>(
    server: &TestServer,
    user: &str,
    version: i16,
    request: &R,
    code: impl Fn(R::Response) -> i16,
) -> i16 {
    let mut client = logged_in(server, user).await;
    code(client.call(version, request).await)
}

#[tokio::test]
async fn each_right_allows_its_own_requests_only() {
    let server = guarded().await;
    let hub = server.make("t", 1).await;
    // The user with the right succeeds; the others get the refusal.
    let users = ["send", "listen", "manage"];
    for user in users {
        let expect = |right: &str, refusal: i16| if user == right { 0 } else { refusal };
        let send = produce(&hub, 9, -1, &[(0, batch(&["a"]))]);
        let of_send = |r: ProduceResponse| r.responses[0].partition_responses[0].error_code;
        assert_eq!(
            code(&server, user, 9, &send, of_send).await,
            expect("send", 29)
        );
        let init = InitProducerIdRequest::default().with_transactional_id(None);
        assert_eq!(
            code(&server, user, 4, &init, |r| r.error_code).await,
            expect("send", 31)
        );
        let id = InitProducerIdRequest::default().with_transactional_id(Some(transactional("x")));
        assert_eq!(
            code(&server, user, 4, &id, |r| r.error_code).await,
            expect("send", 53)
        );
        let wanted = fetch_request::FetchTopic::default()
            .with_topic(topic("t"))
            .with_partitions(vec![fetch_request::FetchPartition::default()]);
        let fetch = FetchRequest::default().with_topics(vec![wanted]);
        let of_fetch = |r: FetchResponse| r.responses[0].partitions[0].error_code;
        assert_eq!(
            code(&server, user, 11, &fetch, of_fetch).await,
            expect("listen", 29)
        );
        let beat = HeartbeatRequest::default().with_group_id(GroupId(text("g")));
        assert_eq!(
            code(&server, user, 4, &beat, |r| r.error_code).await,
            expect("listen", 30)
        );
        let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
        let of_delete = |r: DeleteGroupsResponse| r.results[0].error_code;
        assert_eq!(
            code(&server, user, 2, &delete, of_delete).await,
            expect("manage", 30)
        );
        let wanted = create_topics_request::CreatableTopic::default()
            .with_name(topic("new"))
            .with_num_partitions(1)
            .with_replication_factor(1);
        let create = CreateTopicsRequest::default()
            .with_topics(vec![wanted])
            .with_validate_only(true);
        let of_create = |r: CreateTopicsResponse| r.topics[0].error_code;
        assert_eq!(
            code(&server, user, 7, &create, of_create).await,
            expect("manage", 29)
        );
        let node = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_type(4)
            .with_resource_name(text("1"));
        let describe = DescribeConfigsRequest::default().with_resources(vec![node]);
        let of_describe = |r: DescribeConfigsResponse| r.results[0].error_code;
        assert_eq!(
            code(&server, user, 4, &describe, of_describe).await,
            expect("manage", 31)
        );
    }
    let mut client = logged_in(&server, "nobody").await;
    let response = client
        .call(9, &MetadataRequest::default().with_topics(None))
        .await;
    assert!(response.topics.is_empty());
}

/// The rights of [`RightsByName`], with a quota, an audit log, and users that may come later. A token is the name of a
/// user and the millisecond at which it expires.
#[derive(Default)]
struct TestAccess {
    accepts_tokens: bool,
    limiter: Option<Arc<Limiter>>,
    has_users: AtomicBool,
    events: Mutex<Vec<AuditEvent>>,
}

const SALT: &[u8] = b"salt of the test";

impl Authorizer for TestAccess {
    fn login(&self, user: &str, password: &str) -> BoxFuture<Option<Identity>> {
        RightsByName.login(user, password)
    }

    fn scram_verifiers(&self, user: &str, hash: ScramHash) -> Vec<ScramVerifier> {
        let verifier = (user == "all").then(|| ScramVerifier::new(hash, b"secret", SALT, 4096));
        verifier.into_iter().collect()
    }

    fn accepts_tokens(&self) -> bool {
        self.accepts_tokens
    }

    fn verify_token(&self, token: &str) -> BoxFuture<Result<Session, TokenError>> {
        let parts = token.split_once('.');
        let session = parts.and_then(|(user, expires_ms)| {
            Some(Session {
                identity: Identity::new(user),
                expires_ms: Some(expires_ms.parse().ok()?),
            })
        });
        Box::pin(std::future::ready(session.ok_or(TokenError::Signature)))
    }

    fn refuse_login(&self, user: &str, from: SocketAddr) -> Duration {
        self.audit(AuditEvent {
            who: user.into(),
            from: Some(from),
            operation: "login".into(),
            resource: String::new(),
            outcome: "refused".into(),
        });
        Duration::from_secs(3)
    }

    fn has_users(&self) -> bool {
        self.has_users.load(Ordering::Relaxed)
    }

    fn limiter(&self, _: &Identity) -> Option<Arc<Limiter>> {
        self.limiter.clone()
    }

    fn audit(&self, event: AuditEvent) {
        self.events.lock().unwrap().push(event);
    }

    fn may(&self, who: &Identity, right: Right, on: Resource<'_>) -> bool {
        *who == Identity::anonymous() || RightsByName.may(who, right, on)
    }
}

async fn start_with_access(access: &Arc<TestAccess>) -> TestServer {
    start_with(|_, services| services.authorizer = access.clone()).await
}

fn with_users() -> Arc<TestAccess> {
    Arc::new(TestAccess {
        has_users: AtomicBool::new(true),
        ..TestAccess::default()
    })
}

fn hmac(hash: ScramHash, key: &[u8], text: &[u8]) -> Vec<u8> {
    fn of<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
        let mut mac = <M as KeyInit>::new_from_slice(key).unwrap();
        mac.update(text);
        mac.finalize().into_bytes().to_vec()
    }
    match hash {
        ScramHash::Sha256 => of::<Hmac<Sha256>>(key, text),
        ScramHash::Sha512 => of::<Hmac<Sha512>>(key, text),
    }
}

/// The proof of a client that knows the password.
fn proof(hash: ScramHash, password: &str, messages: &str) -> Vec<u8> {
    let mut round = hmac(hash, password.as_bytes(), &[SALT, &[0, 0, 0, 1]].concat());
    let mut salted = round.clone();
    for _ in 1..4096 {
        round = hmac(hash, password.as_bytes(), &round);
        salted.iter_mut().zip(&round).for_each(|(a, b)| *a ^= b);
    }
    let client_key = hmac(hash, &salted, b"Client Key");
    let stored_key = match hash {
        ScramHash::Sha256 => Sha256::digest(&client_key).to_vec(),
        ScramHash::Sha512 => Sha512::digest(&client_key).to_vec(),
    };
    let signature = hmac(hash, &stored_key, messages.as_bytes());
    client_key
        .iter()
        .zip(signature)
        .map(|(a, b)| a ^ b)
        .collect()
}

/// Logs in by SCRAM; the error code of the last response.
async fn scram(client: &mut Client, hash: ScramHash, user: &str, password: &str) -> i16 {
    let mechanism = match hash {
        ScramHash::Sha256 => "SCRAM-SHA-256",
        ScramHash::Sha512 => "SCRAM-SHA-512",
    };
    let handshake = SaslHandshakeRequest::default().with_mechanism(text(mechanism));
    assert_eq!(client.call(1, &handshake).await.error_code, 0);
    let token = |text: String| SaslAuthenticateRequest::default().with_auth_bytes(text.into());
    let first = format!("n={user},r=nonce");
    let response = client.call(2, &token(format!("n,,{first}"))).await;
    assert_eq!(response.error_code, 0);
    let server_first = String::from_utf8(response.auth_bytes.to_vec()).unwrap();
    let (nonce, _) = server_first.split_once(',').unwrap();
    let last = format!("c=biws,{nonce}");
    let proof = proof(hash, password, &format!("{first},{server_first},{last}"));
    let last = format!("{last},p={}", STANDARD.encode(proof));
    let response = client.call(2, &token(last)).await;
    let signed = response.auth_bytes.starts_with(b"v=");
    assert_eq!(signed, response.error_code == 0);
    response.error_code
}

#[tokio::test]
async fn scram_logs_a_client_in_that_knows_the_password() {
    let server = start_with_access(&with_users()).await;
    for hash in [ScramHash::Sha256, ScramHash::Sha512] {
        let mut client = server.connect().await;
        assert_eq!(scram(&mut client, hash, "all", "secret").await, 0);
        client.call(9, &MetadataRequest::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_scram_login_is_delayed_recorded_and_closed() {
    let access = with_users();
    let server = start_with_access(&access).await;
    for (user, password) in [("all", "wrong"), ("nobody", "secret")] {
        let mut client = server.connect().await;
        let began = tokio::time::Instant::now();
        let code = scram(&mut client, ScramHash::Sha256, user, password).await;
        assert_eq!(code, 58);
        assert!(began.elapsed() >= Duration::from_secs(3));
        assert_eq!(client.receive_frame().await, None);
        let event = access.events.lock().unwrap().pop().unwrap();
        assert_eq!((&*event.who, &*event.operation), (user, "login"));
    }
}

/// A server that accepts tokens, and its clock.
async fn start_with_tokens() -> (TestServer, Arc<TestAccess>, Arc<SimClock>) {
    let clock = Arc::new(SimClock::at_unix_nanos(0));
    let access = Arc::new(TestAccess {
        has_users: AtomicBool::new(true),
        accepts_tokens: true,
        ..TestAccess::default()
    });
    let server = start_with(|_, services| {
        services.authorizer = access.clone();
        services.clock = clock.clone();
    })
    .await;
    (server, access, clock)
}

async fn begin_login(client: &mut Client, mechanism: &str) {
    let handshake = SaslHandshakeRequest::default().with_mechanism(text(mechanism));
    assert_eq!(client.call(1, &handshake).await.error_code, 0);
}

/// Logs in with a token.
async fn bearer(client: &mut Client, token: &str) -> SaslAuthenticateResponse {
    begin_login(client, "OAUTHBEARER").await;
    let message = format!("n,,\x01auth=Bearer {token}\x01\x01");
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    client.call(2, &request).await
}

const CONFIRM: &[u8] = b"\x01";

// proves G4
#[tokio::test]
async fn a_token_logs_a_client_in_for_as_long_as_it_is_valid() {
    let (server, _, clock) = start_with_tokens().await;
    let mut client = server.connect().await;
    let unknown = SaslHandshakeRequest::default().with_mechanism(text("GSSAPI"));
    let offered = client.call(1, &unknown).await.mechanisms;
    assert_eq!(offered.last(), Some(&text("OAUTHBEARER")));
    let response = bearer(&mut client, "all.5000").await;
    assert_eq!((response.error_code, &*response.auth_bytes), (0, &[][..]));
    assert_eq!(response.session_lifetime_ms, 5000);
    client.call(9, &MetadataRequest::default()).await;
    // A new token renews the login.
    clock.set_unix_nanos(4_000_000_000);
    let response = bearer(&mut client, "all.9000").await;
    assert_eq!(response.session_lifetime_ms, 5000);
    clock.set_unix_nanos(8_999_000_000);
    client.call(9, &MetadataRequest::default()).await;
    // Without a renewal the next request ends the connection.
    clock.set_unix_nanos(9_000_000_000);
    client.send(9, &MetadataRequest::default()).await;
    assert_eq!(client.receive_frame().await, None);
    let metrics = server.metrics();
    assert_eq!((metrics.sessions_expired, metrics.malformed), (1, 0));
}

#[tokio::test]
async fn an_expired_login_can_be_renewed() {
    let (server, _, clock) = start_with_tokens().await;
    let mut client = server.connect().await;
    bearer(&mut client, "all.5000").await;
    clock.set_unix_nanos(6_000_000_000);
    client.call(0, &ApiVersionsRequest::default()).await;
    assert_eq!(bearer(&mut client, "all.9000").await.error_code, 0);
    client.call(9, &MetadataRequest::default()).await;
}

// proves G4
#[tokio::test(start_paused = true)]
async fn the_client_of_a_refused_token_gets_the_reason_and_is_disconnected() {
    let (server, access, _) = start_with_tokens().await;
    let mut client = server.connect().await;
    let began = tokio::time::Instant::now();
    let response = bearer(&mut client, "forged").await;
    assert_eq!(response.error_code, 0);
    assert_eq!(&*response.auth_bytes, br#"{"status":"invalid_token"}"#);
    assert!(began.elapsed() >= Duration::from_secs(3));
    let confirm = SaslAuthenticateRequest::default().with_auth_bytes(CONFIRM.into());
    let response = client.call(2, &confirm).await;
    assert_eq!(response.error_code, 58);
    let reason = response.error_message.unwrap();
    assert_eq!(&*reason, "the signature of the token is wrong");
    assert_eq!(client.receive_frame().await, None);
    assert_eq!(access.events.lock().unwrap().len(), 1);
    assert_eq!(server.metrics().logins_refused, 1);
    // A client that ignores the refusal is not logged in.
    let mut client = server.connect().await;
    bearer(&mut client, "forged").await;
    client.send(9, &MetadataRequest::default()).await;
    assert_eq!(client.receive_frame().await, None);
    // A token does not act for another user.
    let mut client = server.connect().await;
    begin_login(&mut client, "OAUTHBEARER").await;
    let message = "n,a=other,\x01auth=Bearer all.5000\x01\x01";
    let request = SaslAuthenticateRequest::default().with_auth_bytes(message.into());
    assert_eq!(client.call(2, &request).await.error_code, 58);
}

// proves G4
#[tokio::test(start_paused = true)]
async fn a_connection_keeps_its_user_when_it_logs_in_again() {
    let (server, _, _) = start_with_tokens().await;
    let mut client = server.connect().await;
    begin_login(&mut client, "PLAIN").await;
    for _ in 0..2 {
        let response = client.call(2, &token("all", "secret")).await;
        assert_eq!(response.error_code, 0);
    }
    assert_eq!(
        scram(&mut client, ScramHash::Sha256, "all", "secret").await,
        0
    );
    assert_eq!(bearer(&mut client, "all.5000").await.error_code, 0);
    client.call(9, &MetadataRequest::default()).await;
    let response = bearer(&mut client, "send.5000").await;
    assert_eq!(response.error_code, 58);
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test]
async fn tokens_are_refused_where_none_are_accepted() {
    let server = start_with_access(&with_users()).await;
    let mut client = server.connect().await;
    let handshake = SaslHandshakeRequest::default().with_mechanism(text("OAUTHBEARER"));
    assert_eq!(client.call(1, &handshake).await.error_code, 33);
}

#[tokio::test]
async fn the_first_user_closes_a_listener_that_is_not_anonymous() {
    let access = Arc::new(TestAccess::default());
    let server = start_with_access(&access).await;
    let mut client = server.connect().await;
    client.call(9, &MetadataRequest::default()).await;
    access.has_users.store(true, Ordering::Relaxed);
    let mut client = server.connect().await;
    client.send(9, &MetadataRequest::default()).await;
    assert_eq!(client.receive_frame().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_above_its_quota_is_throttled() {
    let quota = Quota {
        bytes_in_per_second: Some(1_000),
        partitions_per_hour: Some(2),
        connections_max: Some(1),
        ..Quota::default()
    };
    let access = Arc::new(TestAccess {
        limiter: Some(Arc::new(Limiter::new(quota))),
        has_users: AtomicBool::new(true),
        ..TestAccess::default()
    });
    let server = start_with_access(&access).await;
    let hub = server.make("t", 1).await;
    let mut client = logged_in(&server, "all").await;
    let began = tokio::time::Instant::now();
    let large = batch(&[&"x".repeat(5_000)]);
    let response = client.call(9, &produce(&hub, 9, -1, &[(0, large)])).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
    assert!(response.throttle_time_ms >= 4_000);
    client.call(0, &ApiVersionsRequest::default()).await;
    assert!(began.elapsed() >= Duration::from_secs(4));
    // Every response says so, in the versions that have the field.
    let beat = HeartbeatRequest::default().with_group_id(GroupId(text("g")));
    assert_eq!(client.call(0, &beat).await.throttle_time_ms, 0);
    assert!(client.call(4, &beat).await.throttle_time_ms >= 4_000);
    let all = MetadataRequest::default().with_topics(None);
    assert!(client.call(9, &all).await.throttle_time_ms >= 4_000);
    let fetch = FetchRequest::default();
    assert!(client.call(11, &fetch).await.throttle_time_ms >= 4_000);

    let create = |name: &str, partitions| {
        let topic = create_topics_request::CreatableTopic::default()
            .with_name(topic(name))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        CreateTopicsRequest::default().with_topics(vec![topic])
    };
    for (name, code) in [("a", 0), ("b", 89)] {
        let response = client.call(7, &create(name, 5)).await;
        assert_eq!(response.topics[0].error_code, code, "{name}");
    }
    let mut second = server.connect().await;
    second.send(2, &token("all", "secret")).await;
    second.receive_frame().await.unwrap();
    assert_eq!(second.receive_frame().await, None);
}

// proves G6
#[tokio::test]
async fn a_refusal_is_recorded_once_for_the_connection_and_each_resource() {
    let access = with_users();
    let server = start_with_access(&access).await;
    let hub = server.make("t", 1).await;
    server.make("u", 1).await;
    let take = || {
        let events = std::mem::take(&mut *access.events.lock().unwrap());
        let events = events.into_iter();
        events
            .map(|event| {
                let outcome = event.outcome.ends_with("AuthorizationFailed");
                assert!(outcome, "{}", event.outcome);
                format!("{} {} {}", event.who, event.operation, event.resource)
            })
            .collect::<Vec<_>>()
    };
    let mut client = logged_in(&server, "listen").await;
    let send = produce(&hub, 9, -1, &[(0, batch(&["a"]))]);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic("t"), topic("u")]);
    let init = InitProducerIdRequest::default().with_transactional_id(Some(transactional("x")));
    for _ in 0..3 {
        client.call(9, &send).await;
        // This handler records the changes that it makes.
        client.call(4, &delete).await;
        client.call(4, &init).await;
    }
    assert_eq!(
        take(),
        [
            "listen Produce t",
            "listen DeleteTopics t",
            "listen DeleteTopics u",
            "listen InitProducerId x",
        ]
    );
    // Another connection is recorded again, and unnamed resources are no refusals.
    let mut client = logged_in(&server, "nobody").await;
    let all = MetadataRequest::default().with_topics(None);
    assert!(client.call(9, &all).await.topics.is_empty());
    let groups = ListGroupsRequest::default();
    assert!(client.call(4, &groups).await.groups.is_empty());
    client.call(9, &send).await;
    let beat = HeartbeatRequest::default().with_group_id(GroupId(text("g")));
    client.call(4, &beat).await;
    assert_eq!(take(), ["nobody Produce t", "nobody Heartbeat g"]);
    // A client that goes through names records so many of them.
    for number in 0..200 {
        let name = format!("g{number}");
        let beat = HeartbeatRequest::default().with_group_id(GroupId(text(&name)));
        client.call(4, &beat).await;
    }
    let events = take();
    assert_eq!(events.len(), 63);
    assert_eq!(events[62], "nobody further refusals of this connection ");
}

#[tokio::test]
async fn changes_are_recorded_in_the_audit_log() {
    let access = with_users();
    let server = start_with_access(&access).await;
    server.make("t", 1).await;
    let mut client = logged_in(&server, "manage").await;
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic("t"), topic("u")]);
    client.call(4, &delete).await;
    let group = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(text("g"))]);
    client.call(2, &group).await;
    let events = access.events.lock().unwrap();
    let events: Vec<_> = events
        .iter()
        .map(|event| (&*event.who, &*event.operation, &*event.resource))
        .collect();
    assert_eq!(
        events,
        [
            ("manage", "DeleteTopics", "t"),
            ("manage", "DeleteTopics", "u"),
            ("manage", "DeleteGroups", "g"),
        ]
    );
}

const CERTIFICATE: &[u8] = include_bytes!("../data/localhost.crt");
const KEY: &[u8] = include_bytes!("../data/localhost.key");

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(CERTIFICATE).unwrap()
}

async fn with_tls() -> TestServer {
    start_with(|options, _| {
        let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
        let config = rustls::ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(vec![certificate()], key)
            .unwrap();
        options.listeners[0].tls = Some(Arc::new(config));
    })
    .await
}

#[tokio::test]
async fn requests_over_tls_are_answered() {
    let server = with_tls().await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate()).unwrap();
    let config = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(server.handle.addresses()[0])
        .await
        .unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let mut stream = connector.connect(name, stream).await.unwrap();
    stream
        .write_all(&frame(1, 0, &ApiVersionsRequest::default()))
        .await
        .unwrap();
    let length = stream.read_i32().await.unwrap();
    let mut response = vec![0; length as usize];
    stream.read_exact(&mut response).await.unwrap();
    let (_, response) = decode::<ApiVersionsRequest>(response.into(), 0);
    assert_eq!(response.error_code, 0);
    // Garbage inside TLS closes the connection.
    stream.write_all(&[0xFF; 8]).await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap_or(0);
    assert!(rest.is_empty());
    assert_eq!(server.metrics().malformed, 1);
}

#[tokio::test]
async fn plain_text_to_a_tls_listener_closes_its_connection() {
    let server = with_tls().await;
    let mut client = server.connect().await;
    client.send(0, &ApiVersionsRequest::default()).await;
    let mut rest = Vec::new();
    // The server may send an alert before it closes.
    client.stream.read_to_end(&mut rest).await.unwrap_or(0);
    assert_eq!(server.metrics().malformed, 1);
}
