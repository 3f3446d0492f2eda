//! Handlers and mail servers over TLS, with a certificate that only the settings trust.
//! proves P1, P4

use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;

use crate::processing::receiver::{OK, Receiver};
use crate::processing::world::{QUICK, World};

const CERTIFICATE: &[u8] = include_bytes!("../http/cert.pem");
const KEY: &[u8] = include_bytes!("../http/key.pem");

pub(crate) fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// The file that the settings name.
fn ca() -> String {
    format!("{}/tests/server/http/cert.pem", env!("CARGO_MANIFEST_DIR"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_over_tls_is_believed_when_the_settings_name_its_authority() {
    let receiver = Receiver::start_tls(|_| OK).await;
    let (url, ca) = (receiver.url(), ca());
    let handler = format!("{QUICK}handler = {{ url = \"{url}\", ca = \"{ca}\" }}\n");
    let mut world = World::start(&handler).await;
    world.send(&["1", "2"]).await;
    let facts = world.done().await;
    assert_eq!(
        (&facts["handled"], &facts["failures"]),
        (&2.into(), &0.into())
    );
    assert_eq!(receiver.count(), 2);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_an_unknown_authority_gets_nothing() {
    let receiver = Receiver::start_tls(|_| OK).await;
    let handler = format!("{QUICK}handler = {{ url = \"{}\" }}\n", receiver.url());
    let mut world = World::start(&handler).await;
    world.send(&["1"]).await;
    let facts = world.done().await;
    assert_eq!(facts["dead_letters"], 1);
    let letters = world.json("GET /api/dead-letters/billing", "").await;
    let reason = letters["letters"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("certificate"), "{reason}");
    assert_eq!(receiver.count(), 0);
    world.stop().await;
}

/// A mail server that accepts every mail, and its transcript.
struct MailServer {
    address: String,
    heard: Arc<Heard>,
}

#[derive(Default)]
struct Heard {
    plain: Mutex<Vec<String>>,
    secret: Mutex<Vec<String>>,
    over: Notify,
}

impl MailServer {
    async fn start(offers: &'static str) -> MailServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::<Heard>::default();
        let noted = Arc::clone(&heard);
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            talk_to(stream, offers, &noted).await;
            noted.over.notify_one();
        });
        MailServer { address, heard }
    }
}

async fn talk_to(stream: TcpStream, offers: &str, heard: &Heard) -> Option<()> {
    let mut stream = BufReader::new(stream);
    say(&mut stream, "220 mail.example.org").await?;
    converse(&mut stream, offers, &heard.plain).await?;
    let mut stream = BufReader::new(acceptor().accept(stream.into_inner()).await.ok()?);
    converse(&mut stream, "AUTH PLAIN", &heard.secret).await
}

/// Until the encryption is to begin; `None` when the other side has closed.
async fn converse(
    stream: &mut BufReader<impl AsyncRead + AsyncWrite + Unpin>,
    offers: &str,
    heard: &Mutex<Vec<String>>,
) -> Option<()> {
    let mut in_data = false;
    loop {
        let mut line = String::new();
        let read = stream.read_line(&mut line).await.ok()?;
        if read == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        heard.lock().unwrap().push(line.clone());
        if in_data && line != "." {
            continue;
        }
        let answer = match line.split(' ').next() {
            Some("EHLO") => &format!("250-mail.example.org\r\n250 {offers}"),
            Some("AUTH") => "235 welcome",
            Some("DATA") => "354 go on",
            Some("STARTTLS") => "220 go on",
            Some("QUIT") => "221 bye",
            _ => "250 ok",
        };
        in_data = line == "DATA";
        say(stream, answer).await?;
        if line == "STARTTLS" {
            return Some(());
        }
    }
}

async fn say(
    stream: &mut BufReader<impl AsyncRead + AsyncWrite + Unpin>,
    line: &str,
) -> Option<()> {
    let stream = stream.get_mut();
    stream.write_all(line.as_bytes()).await.ok()?;
    stream.write_all(b"\r\n").await.ok()?;
    stream.flush().await.ok()
}

/// A node whose circuit has opened; the mail server gets the notification.
async fn stopped(receiver: &Receiver, mail: &MailServer) -> World {
    let settings = format!(
        "{QUICK}circuit = {{ failures = 2, open_for = \"forever\" }}\nhandler = {{ url = \"{}\" }}\n\
         [notify]\nca = \"{}\"\n[notify.email]\nserver = \"{}\"\nuser = \"app\"\npassword = \"s3cret\"\n\
         from = \"highwater@example.org\"\nto = [\"ops@example.org\"]\n",
        receiver.url(),
        ca(),
        mail.address
    );
    let world = World::start(&settings).await;
    world.send(&["1"]).await;
    world
}

async fn over(mail: &MailServer) {
    let over = tokio::time::timeout(
        std::time::Duration::from_secs(60),
        mail.heard.over.notified(),
    );
    over.await.expect("the mail server is spoken to");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_is_sent_encrypted_with_a_link_that_resumes() {
    let receiver = Receiver::start(|_| Some("503 Down")).await;
    let mail = MailServer::start("STARTTLS").await;
    let mut world = stopped(&receiver, &mail).await;
    over(&mail).await;
    let plain = mail.heard.plain.lock().unwrap().clone();
    assert_eq!(plain, ["EHLO highwater", "STARTTLS"]);
    let secret = mail.heard.secret.lock().unwrap().clone();
    for line in [
        "AUTH PLAIN AGFwcABzM2NyZXQ=",
        "MAIL FROM:<highwater@example.org>",
        "RCPT TO:<ops@example.org>",
        "Subject: Highwater: billing has stopped",
    ] {
        assert!(
            secret.iter().any(|heard| heard == line),
            "{line}: {secret:#?}"
        );
    }
    let body = secret.iter().skip_while(|line| !line.is_empty()).skip(1);
    let body: String = body.take_while(|line| *line != ".").cloned().collect();
    let text = String::from_utf8(STANDARD.decode(body).unwrap()).unwrap();
    let token = text.split("/resume/").nth(1).unwrap();
    let token = token.split_whitespace().next().unwrap();
    receiver.behave(|_| OK);
    let (status, _) = world.call(&format!("POST /resume/{token}"), "").await;
    assert_eq!(status, 200);
    assert_eq!(world.done().await["circuit"], Value::from("closed"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mail_server_without_encryption_is_told_nothing() {
    let receiver = Receiver::start(|_| Some("503 Down")).await;
    let mail = MailServer::start("8BITMIME").await;
    let mut world = stopped(&receiver, &mail).await;
    over(&mail).await;
    assert_eq!(*mail.heard.plain.lock().unwrap(), ["EHLO highwater"]);
    assert!(mail.heard.secret.lock().unwrap().is_empty());
    world.stop().await;
}
