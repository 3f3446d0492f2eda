//! A minimal SMTP client that submits a mail.
//!
//! With `starttls` the server must offer encryption, or nothing is sent; with `off` nothing is encrypted and no
//! password is sent.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_env::EgressPolicy;
use highwater_net::tls;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::{Email, Tls};
use crate::processors::resolve_secrets;
use crate::processors::spec::Secret;

/// Bounds on an answer: bytes of a line, and lines.
const LINE_BYTES_MAX: u64 = 4096;
const LINES_MAX: usize = 100;

pub(super) struct Mail<'a> {
    pub(super) subject: &'a str,
    pub(super) text: &'a str,
    /// As in the Date header: `Sun, 15 Nov 2026 12:00:00 GMT`.
    pub(super) date: &'a str,
    /// Unique among the mails of this sender.
    pub(super) id: &'a str,
}

/// Sends one mail to all receivers. `ca` has certificates to trust in addition to those of the system.
pub(super) async fn send(
    email: &Email,
    egress: &EgressPolicy,
    ca: Option<&str>,
    mail: &Mail<'_>,
) -> Result<(), String> {
    let (host, port) = email.server.rsplit_once(':').unwrap_or_default();
    let port = port
        .parse()
        .map_err(|_| format!("`{}` has no port", email.server))?;
    let stream = egress.connect(host, port).await;
    let stream = stream.map_err(|error| format!("no connection to {}: {error}", email.server))?;
    if email.tls == Tls::Always {
        return submit(connect_tls(email, ca, stream).await?, email, mail, true).await;
    }
    if email.tls == Tls::Off {
        return submit(stream, email, mail, true).await;
    }
    let mut session = Session::new(stream);
    session.expect(220).await?;
    let offers = session.command("EHLO highwater", 250).await?;
    if !offers
        .iter()
        .any(|line| line.eq_ignore_ascii_case("STARTTLS"))
    {
        return Err("the mail server offers no encryption".into());
    }
    session.command("STARTTLS", 220).await?;
    // Bytes from before the encryption are not authenticated.
    if !session.stream.buffer().is_empty() {
        return Err("the mail server sent data before the encryption began".into());
    }
    let stream = connect_tls(email, ca, session.stream.into_inner()).await?;
    submit(stream, email, mail, false).await
}

async fn connect_tls(
    email: &Email,
    ca: Option<&str>,
    stream: TcpStream,
) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, String> {
    let host = email.server.rsplit_once(':').map_or("", |(host, _)| host);
    let config = tls::trust_system_and(ca.unwrap_or_default(), None)?;
    let stream = tls::connect(config, host, stream).await;
    stream.map_err(|error| format!("no secure connection to {}: {error}", email.server))
}

/// Submits the mail. `greeting`: the greeting of the server has not been read yet.
async fn submit(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    email: &Email,
    mail: &Mail<'_>,
    greeting: bool,
) -> Result<(), String> {
    let mut session = Session::new(stream);
    if greeting {
        session.expect(220).await?;
    }
    session.command("EHLO highwater", 250).await?;
    if let Some((user, Secret(password))) = &email.login {
        let password = resolve_secrets(password)?;
        let login = STANDARD.encode(format!("\0{user}\0{password}"));
        let logged_in = session.command(&format!("AUTH PLAIN {login}"), 235).await;
        logged_in.map_err(|error| format!("the mail server refuses user {user}: {error}"))?;
    }
    session
        .command(&format!("MAIL FROM:<{}>", email.from), 250)
        .await?;
    for to in &email.to {
        session.command(&format!("RCPT TO:<{to}>"), 250).await?;
    }
    session.command("DATA", 354).await?;
    session.command(&data(email, mail), 250).await?;
    // The mail is accepted; the answer to QUIT does not matter.
    let _ = session.command("QUIT", 221).await;
    Ok(())
}

/// The mail with its headers and the final dot.
fn data(email: &Email, mail: &Mail<'_>) -> String {
    let host = email
        .from
        .rsplit_once('@')
        .map_or("localhost", |(_, host)| host);
    let mut out = format!(
        "From: <{}>\r\nTo: {}\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}@{host}>\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
        email.from,
        email
            .to
            .iter()
            .map(|to| format!("<{to}>"))
            .collect::<Vec<_>>()
            .join(", "),
        encoded_word(mail.subject),
        mail.date,
        mail.id,
    );
    for line in STANDARD.encode(mail.text).as_bytes().chunks(76) {
        out.push_str(&String::from_utf8_lossy(line));
        out.push_str("\r\n");
    }
    out.push('.');
    out
}

/// A subject with any characters, as a MIME encoded word.
fn encoded_word(text: &str) -> String {
    let plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.len() < 70;
    match plain && !text.starts_with("=?") {
        true => text.to_owned(),
        false => format!(
            "=?utf-8?B?{}?=",
            STANDARD.encode(text.chars().take(40).collect::<String>())
        ),
    }
}

/// A connection to the server.
struct Session<S> {
    stream: BufReader<S>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    fn new(stream: S) -> Session<S> {
        Session {
            stream: BufReader::new(stream),
        }
    }

    async fn command(&mut self, line: &str, expected: u16) -> Result<Vec<String>, String> {
        let broken =
            |error: std::io::Error| format!("the mail server closed the connection: {error}");
        let stream = self.stream.get_mut();
        stream.write_all(line.as_bytes()).await.map_err(broken)?;
        stream.write_all(b"\r\n").await.map_err(broken)?;
        stream.flush().await.map_err(broken)?;
        self.expect(expected).await
    }

    /// The lines of an answer without their codes.
    async fn expect(&mut self, expected: u16) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            let read = (&mut self.stream)
                .take(LINE_BYTES_MAX)
                .read_line(&mut line)
                .await;
            read.map_err(|error| format!("the mail server closed the connection: {error}"))?;
            let line = line.trim_end();
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            if code != Some(expected) || lines.len() == LINES_MAX {
                let shown: String = line.chars().take(200).collect();
                return Err(format!("the mail server answers: {shown}"));
            }
            lines.push(line.get(4..).unwrap_or_default().to_owned());
            if line.as_bytes().get(3) != Some(&b'-') {
                return Ok(lines);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;

    fn email(login: Option<(&str, &str)>) -> Email {
        Email {
            server: "mail.example.org:587".into(),
            tls: Tls::Off,
            login: login.map(|(user, password)| (user.into(), Secret(password.into()))),
            from: "highwater@example.org".into(),
            to: vec!["a@example.org".into(), "b@example.org".into()],
        }
    }

    /// Answers each command with the next answer, and records the commands.
    async fn server(stream: tokio::io::DuplexStream, answers: &[&str]) -> String {
        let mut stream = BufReader::new(stream);
        let mut heard = String::new();
        let mut in_data = false;
        for answer in answers {
            stream
                .get_mut()
                .write_all(format!("{answer}\r\n").as_bytes())
                .await
                .unwrap();
            loop {
                let mut line = String::new();
                if stream.read_line(&mut line).await.unwrap() == 0 {
                    return heard;
                }
                heard.push_str(&line);
                if !in_data || line == ".\r\n" {
                    in_data = line == "DATA\r\n";
                    break;
                }
            }
        }
        heard
    }

    const MAIL: Mail<'_> = Mail {
        subject: "Highwater: billing has stopped",
        text: "It is down.\n.\nresume",
        date: "Sun, 15 Nov 2026 12:00:00 GMT",
        id: "billing-42",
    };

    // proves P4
    #[tokio::test]
    async fn a_mail_is_submitted_to_all_receivers() {
        let (ours, theirs) = duplex(4096);
        let answers = [
            "220 mail.example.org",
            "250-mail.example.org\r\n250 AUTH PLAIN",
            "235 welcome",
            "250 ok",
            "250 ok",
            "250 ok",
            "354 go on",
            "250 taken",
            "221 bye",
        ];
        let email = email(Some(("app", "s3cret")));
        let (sent, heard) =
            tokio::join!(submit(ours, &email, &MAIL, true), server(theirs, &answers));
        assert_eq!(sent, Ok(()));
        let (head, rest) = heard.split_once("\r\n\r\n").unwrap();
        let expected = [
            "EHLO highwater",
            "AUTH PLAIN AGFwcABzM2NyZXQ=",
            "MAIL FROM:<highwater@example.org>",
            "RCPT TO:<a@example.org>",
            "RCPT TO:<b@example.org>",
            "DATA",
            "From: <highwater@example.org>",
            "To: <a@example.org>, <b@example.org>",
            "Subject: Highwater: billing has stopped",
            "Date: Sun, 15 Nov 2026 12:00:00 GMT",
            "Message-ID: <billing-42@example.org>",
            "MIME-Version: 1.0",
            "Content-Type: text/plain; charset=utf-8",
            "Content-Transfer-Encoding: base64",
        ];
        assert_eq!(head.lines().collect::<Vec<_>>(), expected);
        let (body, goodbye) = rest.split_once("\r\n.\r\n").unwrap();
        assert_eq!(STANDARD.decode(body).unwrap(), MAIL.text.as_bytes());
        assert_eq!(goodbye, "QUIT\r\n");
    }

    #[tokio::test]
    async fn a_refusal_is_told() {
        let (ours, theirs) = duplex(4096);
        let answers = ["220 hi", "250 hello", "550 who are you?", "221 bye"];
        let email = email(None);
        let (sent, _) = tokio::join!(submit(ours, &email, &MAIL, true), server(theirs, &answers));
        assert_eq!(
            sent,
            Err("the mail server answers: 550 who are you?".into())
        );
    }

    #[test]
    fn a_subject_cannot_end_its_line() {
        assert_eq!(encoded_word("a\r\nBcc: x"), "=?utf-8?B?YQ0KQmNjOiB4?=");
    }
}
