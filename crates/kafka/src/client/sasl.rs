//! The login of a connection: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.

use std::time::Duration;

use bytes::Bytes;
use highwater_access::{ScramClient, ScramHash};
use highwater_env::random::Random;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};

use super::connection::{CallError, CallOptions, Connection};
use super::options::{Login, Mechanism, Options, TokenSource};
use crate::codes::OK;
use crate::handlers::text;

/// More iterations would let a broker keep the client busy.
const ITERATIONS_MAX: u32 = 1_000_000;

/// Logs in if the options require it. Returns how long the broker accepts the login; `None` if there is no limit.
pub(super) async fn log_in(
    connection: &Connection,
    call: CallOptions<'_>,
    options: &Options,
) -> Result<Option<Duration>, CallError> {
    let exchange = Exchange { connection, call };
    match (&options.token, &options.login) {
        (Some(token), _) => exchange.bearer(token).await,
        (None, Some(login)) => match options.mechanism {
            Mechanism::Plain => exchange.plain(login).await,
            Mechanism::Scram(hash) => exchange.scram(login, hash).await,
        },
        (None, None) => Ok(None),
    }
}

fn refused(reason: impl std::fmt::Display) -> CallError {
    CallError::Refused(format!("the login was refused: {reason}"))
}

struct Exchange<'a> {
    connection: &'a Connection,
    call: CallOptions<'a>,
}

impl Exchange<'_> {
    async fn plain(&self, login: &Login) -> Result<Option<Duration>, CallError> {
        self.begin("PLAIN").await?;
        let token = format!("\0{}\0{}", login.user, login.password);
        let (_, lifetime) = self.send(token).await?;
        Ok(lifetime)
    }

    async fn scram(&self, login: &Login, hash: ScramHash) -> Result<Option<Duration>, CallError> {
        let mechanism = match hash {
            ScramHash::Sha256 => "SCRAM-SHA-256",
            ScramHash::Sha512 => "SCRAM-SHA-512",
        };
        self.begin(mechanism).await?;
        let mut random = Random::from_os();
        let nonce = format!("{:016x}{:016x}", random.next_u64(), random.next_u64());
        let client = ScramClient::new(hash, &login.user, &nonce);
        let (server_first, _) = self.send(client.first_message()).await?;
        let password = login.password.clone();
        // The iterations take milliseconds, or more if the broker wants more.
        let proved = tokio::task::spawn_blocking(move || {
            client.prove(password.as_bytes(), &server_first, ITERATIONS_MAX)
        });
        let proved = proved.await.map_err(refused)?;
        let proof = proved.map_err(refused)?;
        let (server_last, lifetime) = self.send(proof.message).await?;
        match server_last == proof.server_message {
            true => Ok(lifetime),
            false => Err(refused("the broker does not know the password")),
        }
    }

    async fn bearer(&self, source: &TokenSource) -> Result<Option<Duration>, CallError> {
        let token = source
            .read()
            .map_err(|error| refused(format!("the token cannot be read: {error}")))?;
        // A separator inside the token would end its field.
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused("the token is empty or has unprintable characters"));
        }
        self.begin("OAUTHBEARER").await?;
        let message = format!("n,,\x01auth=Bearer {token}\x01\x01");
        match self.send(message).await? {
            (error, _) if !error.is_empty() => {
                // The broker explains why, and expects a last message before it refuses the login.
                let _ = self.send("\x01".into()).await?;
                Err(refused(format!("the token: {error}")))
            }
            (_, lifetime) => Ok(lifetime),
        }
    }

    async fn begin(&self, mechanism: &'static str) -> Result<(), CallError> {
        let handshake = self.connection.call(self.call, |_| {
            SaslHandshakeRequest::default().with_mechanism(text(mechanism))
        });
        let handshake = handshake.await?;
        if handshake.error_code == OK {
            return Ok(());
        }
        let supported = handshake.mechanisms.iter();
        let supported: Vec<_> = supported.map(|name| name.as_str()).collect();
        Err(CallError::Refused(format!(
            "{mechanism} is not supported; supported mechanisms: {}",
            supported.join(", ")
        )))
    }

    /// Sends a message of the exchange. Returns the broker's message, and how long the login is accepted.
    async fn send(&self, message: String) -> Result<(String, Option<Duration>), CallError> {
        let message = Bytes::from(message);
        let response = self.connection.call(self.call, |_| {
            SaslAuthenticateRequest::default().with_auth_bytes(message)
        });
        let response = response.await?;
        if response.error_code != OK {
            let error = response.error_message.map(|error| error.to_string());
            return Err(refused(error.unwrap_or_else(|| {
                super::errors::code_from(response.error_code).to_string()
            })));
        }
        let message = String::from_utf8(response.auth_bytes.to_vec())
            .map_err(|_| refused("the broker sent no text"))?;
        let lifetime = u64::try_from(response.session_lifetime_ms).unwrap_or(0);
        let lifetime = (lifetime > 0).then(|| Duration::from_millis(lifetime));
        Ok((message, lifetime))
    }
}
