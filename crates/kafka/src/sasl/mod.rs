//! The SASL exchange of a connection: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER.
//!
//! A client may log in again on the same connection, as the same user, before its login expires (KIP-368).

mod bearer;
mod scram;

use highwater_access::{ScramHash, TokenError};

use crate::access::{Authorizer, Identity, Session};
pub(crate) use bearer::{BearerToken, INVALID_TOKEN};
pub(crate) use scram::ScramChallenge;
use scram::{ClientFirst, ScramExchange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(ScramHash),
    OauthBearer,
}

impl Mechanism {
    const ALL: [Mechanism; 4] = [
        Mechanism::Plain,
        Mechanism::Scram(ScramHash::Sha256),
        Mechanism::Scram(ScramHash::Sha512),
        Mechanism::OauthBearer,
    ];

    /// The mechanisms that clients can log in with.
    pub(crate) fn enabled(authorizer: &dyn Authorizer) -> impl Iterator<Item = Mechanism> {
        let tokens = authorizer.accepts_tokens();
        let all = Mechanism::ALL.into_iter();
        all.filter(move |mechanism| tokens || *mechanism != Mechanism::OauthBearer)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
            Mechanism::OauthBearer => "OAUTHBEARER",
        }
    }
}

/// The state between the requests of a login, and between logins.
#[derive(Default)]
pub(crate) struct SaslExchange {
    mechanism: Option<Mechanism>,
    state: ExchangeState,
    /// The user of the first login. Later ones must be of the same user.
    user: Option<Identity>,
}

#[derive(Default)]
enum ExchangeState {
    #[default]
    Start,
    Scram(ScramExchange),
    TokenRefused(TokenError),
}

/// The result of one token of the client.
pub(crate) enum SaslStep {
    /// The client must answer this token.
    Continue(String),
    Authenticated {
        session: Session,
        token: String,
    },
    /// The authorizer has to check the password.
    CheckPassword {
        user: String,
        password: String,
    },
    /// The authorizer has to verify the token.
    Verify(BearerToken),
    /// Wrong credentials; `user` is the claimed name.
    Failed {
        user: String,
    },
    /// The client confirms that its token was refused.
    TokenRefused(TokenError),
}

impl SaslExchange {
    pub(crate) fn begin(&mut self, mechanism: Mechanism) {
        self.mechanism = Some(mechanism);
        self.state = ExchangeState::Start;
    }

    /// Handles a token of the client. Without a handshake it is one of PLAIN.
    pub(crate) fn step(
        &mut self,
        authorizer: &dyn Authorizer,
        token: &[u8],
        challenge: &ScramChallenge,
    ) -> SaslStep {
        let failed = |user: &str| SaslStep::Failed { user: user.into() };
        let Ok(token) = std::str::from_utf8(token) else {
            return failed("");
        };
        let authenticated = |identity, token| SaslStep::Authenticated {
            session: Session::new(identity),
            token,
        };
        let mechanism = self.mechanism.unwrap_or(Mechanism::Plain);
        match (mechanism, std::mem::take(&mut self.state)) {
            (Mechanism::Plain, _) => {
                let (user, password) = credentials(token).unwrap_or_default();
                SaslStep::CheckPassword {
                    user: user.into(),
                    password: password.into(),
                }
            }
            (Mechanism::Scram(_), ExchangeState::Scram(exchange)) => match exchange.finish(token) {
                Ok((user, token)) => authenticated(Identity::new(&user), token),
                Err(user) => failed(&user),
            },
            (Mechanism::Scram(hash), _) => {
                let Some(first) = ClientFirst::parse(token) else {
                    return failed("");
                };
                let verifiers = authorizer.scram_verifiers(&first.user, hash);
                let (exchange, token) = ScramExchange::start(first, hash, verifiers, challenge);
                self.state = ExchangeState::Scram(exchange);
                SaslStep::Continue(token)
            }
            (Mechanism::OauthBearer, ExchangeState::TokenRefused(error)) => {
                SaslStep::TokenRefused(error)
            }
            (Mechanism::OauthBearer, _) => match BearerToken::parse(token) {
                Some(bearer) => SaslStep::Verify(bearer),
                None => failed(""),
            },
        }
    }

    /// The token of the client is not valid: the login fails at its next message.
    pub(crate) fn refuse_token(&mut self, error: TokenError) {
        self.state = ExchangeState::TokenRefused(error);
    }

    /// Whether the connection may have this user from now on.
    pub(crate) fn accept(&mut self, user: &Identity) -> bool {
        let known = self.user.get_or_insert_with(|| user.clone());
        known == user
    }
}

/// Undoes the escapes of names: `=2C` is a comma, `=3D` is `=`.
fn unescape(name: &str) -> Option<String> {
    let plain = name.replace("=2C", ",").replace("=3D", "\0");
    let valid = !plain.contains('=') && !name.contains('\0');
    valid.then(|| plain.replace('\0', "="))
}

/// Splits `authzid NUL user NUL password`. Clients leave the first empty or repeat the user.
fn credentials(token: &str) -> Option<(&str, &str)> {
    let mut parts = token.split('\0');
    let (authzid, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    let plain = parts.next().is_none() && (authzid.is_empty() || authzid == user);
    plain.then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_token_has_three_parts_and_acts_for_its_own_user() {
        assert_eq!(credentials("\0ann\0pw"), Some(("ann", "pw")));
        assert_eq!(credentials("ann\0ann\0pw"), Some(("ann", "pw")));
        for token in ["bob\0ann\0pw", "ann\0pw", "\0ann\0pw\0", ""] {
            assert_eq!(credentials(token), None);
        }
    }
}
