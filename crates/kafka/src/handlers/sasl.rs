//! SaslHandshake and SaslAuthenticate.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{some_text, text};
use crate::access::Session;
use crate::codes::OK;
use crate::request::{ProtocolError, RequestContext};
use crate::response::{ConnectionAction, EncodedResponse};
use crate::sasl::{BearerToken, INVALID_TOKEN, Mechanism, SaslExchange, SaslStep};

const WRONG_CREDENTIALS: &str = "wrong user or password";

pub(crate) fn handshake(
    context: &RequestContext,
    request: SaslHandshakeRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let enabled = || Mechanism::enabled(&*context.broker.services.authorizer);
    let requested = enabled().find(|mechanism| mechanism.name() == &*request.mechanism);
    let code = match (&context.sasl, requested) {
        (None, _) => Code::IllegalSaslState.code(),
        (_, None) => Code::UnsupportedSaslMechanism.code(),
        // Version 0 is followed by tokens without a header, which no current client sends.
        _ if context.version == 0 => Code::UnsupportedVersion.code(),
        (Some(exchange), Some(mechanism)) => {
            lock(exchange).begin(mechanism);
            OK
        }
    };
    let names = enabled().map(|mechanism| text(mechanism.name()));
    let response = SaslHandshakeResponse::default()
        .with_error_code(code)
        .with_mechanisms(names.collect());
    context.encode(response)
}

/// A refused login is answered after a delay, then the connection is closed.
pub(crate) async fn authenticate(
    context: &RequestContext,
    request: SaslAuthenticateRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let Some(exchange) = &context.sasl else {
        return refuse(context, "", WRONG_CREDENTIALS).await;
    };
    let authorizer = &*context.broker.services.authorizer;
    let challenge = context.broker.challenges.next();
    let step = lock(exchange).step(authorizer, &request.auth_bytes, &challenge);
    match step {
        SaslStep::Continue(token) => proceed(context, token),
        SaslStep::Authenticated { session, token } => {
            accept(context, exchange, session, token).await
        }
        SaslStep::CheckPassword { user, password } => {
            match authorizer.login(&user, &password).await {
                Some(identity) => {
                    let session = Session::new(identity);
                    accept(context, exchange, session, String::new()).await
                }
                None => refuse(context, &user, WRONG_CREDENTIALS).await,
            }
        }
        SaslStep::Verify(bearer) => verify(context, exchange, bearer).await,
        SaslStep::Failed { user } => refuse(context, &user, WRONG_CREDENTIALS).await,
        SaslStep::TokenRefused(error) => fail(context, &error.to_string()),
    }
}

/// Sends a token that the client must answer.
fn proceed(context: &RequestContext, token: String) -> Result<EncodedResponse, ProtocolError> {
    let response = SaslAuthenticateResponse::default();
    context.encode(response.with_auth_bytes(Bytes::from(token)))
}

/// Verifies the token of an identity provider. The client gets the reason of a refusal before the login fails.
async fn verify(
    context: &RequestContext,
    exchange: &Mutex<SaslExchange>,
    bearer: BearerToken,
) -> Result<EncodedResponse, ProtocolError> {
    let authorizer = &context.broker.services.authorizer;
    match authorizer.verify_token(&bearer.token).await {
        Ok(session) => {
            let user = session.identity.name();
            if bearer.authzid.is_some_and(|authzid| authzid != user) {
                let user = user.to_owned();
                return refuse(context, &user, "the token is of another user").await;
            }
            accept(context, exchange, session, String::new()).await
        }
        Err(error) => {
            delay_refusal(context, "").await;
            lock(exchange).refuse_token(error);
            proceed(context, INVALID_TOKEN.to_owned())
        }
    }
}

/// Completes a login; `token` is the last of the server.
async fn accept(
    context: &RequestContext,
    exchange: &Mutex<SaslExchange>,
    session: Session,
    token: String,
) -> Result<EncodedResponse, ProtocolError> {
    let is_same_user = lock(exchange).accept(&session.identity);
    if !is_same_user {
        let message = "a connection cannot change its user";
        return refuse(context, session.identity.name(), message).await;
    }
    let now_ms = context.broker.services.clock.unix_millis();
    // 0 would mean that the session does not end.
    let lifetime_ms = session.expires_ms.map(|ends| (ends - now_ms).max(1));
    let response = SaslAuthenticateResponse::default()
        .with_auth_bytes(Bytes::from(token))
        .with_session_lifetime_ms(lifetime_ms.unwrap_or(0));
    let action = ConnectionAction::Authenticated(session);
    Ok(context.encode(response)?.then(action))
}

async fn refuse(
    context: &RequestContext,
    user: &str,
    message: &str,
) -> Result<EncodedResponse, ProtocolError> {
    delay_refusal(context, user).await;
    fail(context, message)
}

/// Counts and records a refused login, and waits before it is answered.
async fn delay_refusal(context: &RequestContext, user: &str) {
    context.broker.metrics.logins_refused.add(1);
    let authorizer = &context.broker.services.authorizer;
    let delay = authorizer.refuse_login(user, context.client);
    tokio::time::sleep(delay.max(context.broker.options.login_delay)).await;
}

fn fail(context: &RequestContext, message: &str) -> Result<EncodedResponse, ProtocolError> {
    let response = SaslAuthenticateResponse::default()
        .with_error_code(context.error_code(&Code::SaslAuthenticationFailed))
        .with_error_message(some_text(message));
    Ok(context.encode(response)?.then(ConnectionAction::Close))
}

fn lock(exchange: &Mutex<SaslExchange>) -> MutexGuard<'_, SaslExchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}
