//! SaslHandshake and SaslAuthenticate.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{some_text, text};
use crate::codes::OK;
use crate::request::{ProtocolError, RequestContext};
use crate::response::{ConnectionAction, EncodedResponse};
use crate::sasl::{Mechanism, SaslExchange, SaslStep};

pub(crate) fn handshake(
    context: &RequestContext,
    request: SaslHandshakeRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let mut mechanisms = Mechanism::ALL.into_iter();
    let requested = mechanisms.find(|mechanism| mechanism.name() == &*request.mechanism);
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
    let names = Mechanism::ALL
        .iter()
        .map(|mechanism| text(mechanism.name()));
    let response = SaslHandshakeResponse::default()
        .with_error_code(code)
        .with_mechanisms(names.collect());
    context.encode(&response)
}

/// A refused login is answered after a delay, then the connection is closed.
pub(crate) async fn authenticate(
    context: &RequestContext,
    request: SaslAuthenticateRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let services = &context.broker.services;
    let step = match &context.sasl {
        Some(exchange) => {
            let challenge = context.broker.challenges.next();
            lock(exchange).step(&*services.authorizer, &request.auth_bytes, &challenge)
        }
        None => SaslStep::Failed {
            user: String::new(),
        },
    };
    let response = SaslAuthenticateResponse::default();
    match step {
        SaslStep::Continue(token) => context.encode(&response.with_auth_bytes(Bytes::from(token))),
        SaslStep::Authenticated { identity, token } => {
            let response = response.with_auth_bytes(Bytes::from(token));
            let action = ConnectionAction::Authenticated(identity);
            Ok(context.encode(&response)?.then(action))
        }
        SaslStep::Failed { user } => {
            context.broker.metrics.logins_refused.add(1);
            let delay = services.authorizer.refuse_login(&user, context.client);
            tokio::time::sleep(delay.max(context.broker.options.login_delay)).await;
            let response = response
                .with_error_code(context.error_code(&Code::SaslAuthenticationFailed))
                .with_error_message(some_text("wrong user or password"));
            Ok(context.encode(&response)?.then(ConnectionAction::Close))
        }
    }
}

fn lock(exchange: &Mutex<SaslExchange>) -> MutexGuard<'_, SaslExchange> {
    exchange.lock().unwrap_or_else(PoisonError::into_inner)
}
