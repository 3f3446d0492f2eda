//! Authentication by SASL PLAIN: a user name and a password.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{some_text, text};
use crate::codes::OK;
use crate::request::{ProtocolError, RequestContext};
use crate::response::{ConnectionAction, EncodedResponse};

const MECHANISM: &str = "PLAIN";

pub(crate) fn handshake(
    context: &RequestContext,
    request: SaslHandshakeRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let code = match () {
        () if !context.listener.sasl => Code::IllegalSaslState.code(),
        () if &*request.mechanism != MECHANISM => Code::UnsupportedSaslMechanism.code(),
        // Version 0 is followed by tokens without a header, which no current client sends.
        () if context.version == 0 => Code::UnsupportedVersion.code(),
        () => OK,
    };
    let response = SaslHandshakeResponse::default()
        .with_error_code(code)
        .with_mechanisms(vec![text(MECHANISM)]);
    context.encode(&response)
}

/// A refused login is answered after a delay, then the connection is closed.
pub(crate) async fn authenticate(
    context: &RequestContext,
    request: SaslAuthenticateRequest,
) -> Result<EncodedResponse, ProtocolError> {
    let login = |(user, password)| context.broker.services.authorizer.login(user, password);
    let identity = match context.listener.sasl {
        true => credentials(&request.auth_bytes).and_then(login),
        false => None,
    };
    let Some(identity) = identity else {
        context.broker.metrics.logins_refused.add(1);
        tokio::time::sleep(context.broker.options.login_delay).await;
        let response = SaslAuthenticateResponse::default()
            .with_error_code(context.error_code(&Code::SaslAuthenticationFailed))
            .with_error_message(some_text("wrong user or password"));
        return Ok(context.encode(&response)?.then(ConnectionAction::Close));
    };
    let response = SaslAuthenticateResponse::default();
    Ok(context
        .encode(&response)?
        .then(ConnectionAction::Authenticated(identity)))
}

/// Splits `authzid NUL user NUL password`. Clients leave the first empty or repeat the user.
fn credentials(token: &[u8]) -> Option<(&str, &str)> {
    let mut parts = std::str::from_utf8(token).ok()?.split('\0');
    let (authzid, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = parts.next().is_none() && (authzid.is_empty() || authzid == user);
    plain.then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::credentials;

    #[test]
    fn a_token_has_three_parts_and_acts_for_its_own_user() {
        assert_eq!(credentials(b"\0ann\0pw"), Some(("ann", "pw")));
        assert_eq!(credentials(b"ann\0ann\0pw"), Some(("ann", "pw")));
        for token in [
            &b"bob\0ann\0pw"[..],
            b"ann\0pw",
            b"\0ann\0pw\0",
            b"\0\xFF\0pw",
            b"",
        ] {
            assert_eq!(credentials(token), None);
        }
    }
}
