//! Authentication: SASL PLAIN, which is a name and a password.

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{some_text, text};
use crate::answer::{Outcome, Then};
use crate::broker::Broker;
use crate::call::{Call, ProtocolError};
use crate::codes::OK;

const MECHANISM: &str = "PLAIN";

pub(crate) fn handshake(
    call: &Call,
    request: SaslHandshakeRequest,
) -> Result<Outcome, ProtocolError> {
    let code = match () {
        () if !call.listener_info.sasl => Code::IllegalSaslState.code(),
        () if &*request.mechanism != MECHANISM => Code::UnsupportedSaslMechanism.code(),
        // What follows version 0 are tokens without any header, which no client of today sends.
        () if call.version == 0 => Code::UnsupportedVersion.code(),
        () => OK,
    };
    let answer = SaslHandshakeResponse::default()
        .with_error_code(code)
        .with_mechanisms(vec![text(MECHANISM)]);
    call.encode(&answer)
}

/// A refusal takes its time, and then the connection is closed.
pub(crate) async fn authenticate(
    broker: &Broker,
    call: &Call,
    request: SaslAuthenticateRequest,
) -> Result<Outcome, ProtocolError> {
    let login = |(user, password)| broker.services.authorizer.login(user, password);
    let who = match call.listener_info.sasl {
        true => credentials(&request.auth_bytes).and_then(login),
        false => None,
    };
    let Some(who) = who else {
        broker.metrics.logins_refused.add(1);
        tokio::time::sleep(broker.options.login_delay).await;
        let answer = SaslAuthenticateResponse::default()
            .with_error_code(broker.fail(&Code::SaslAuthenticationFailed))
            .with_error_message(some_text("the user or the password is wrong"));
        return Ok(call.encode(&answer)?.then(Then::Close));
    };
    let answer = SaslAuthenticateResponse::default();
    Ok(call.encode(&answer)?.then(Then::Known(who)))
}

/// `authzid NUL user NUL password`. Some clients leave the first empty and some repeat the user.
fn credentials(token: &[u8]) -> Option<(&str, &str)> {
    let mut parts = std::str::from_utf8(token).ok()?.split('\0');
    let (acts_as, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = parts.next().is_none() && (acts_as.is_empty() || acts_as == user);
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
