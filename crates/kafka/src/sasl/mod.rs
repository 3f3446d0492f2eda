//! The SASL exchange of a connection: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512.

mod scram;

use highwater_access::ScramHash;

use crate::access::{Authorizer, Identity};
pub(crate) use scram::ScramChallenge;
use scram::{ClientFirst, ScramExchange};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Plain,
    Scram(ScramHash),
}

impl Mechanism {
    pub(crate) const ALL: [Mechanism; 3] = [
        Mechanism::Plain,
        Mechanism::Scram(ScramHash::Sha256),
        Mechanism::Scram(ScramHash::Sha512),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(ScramHash::Sha256) => "SCRAM-SHA-256",
            Mechanism::Scram(ScramHash::Sha512) => "SCRAM-SHA-512",
        }
    }
}

/// The state between the requests of a login.
#[derive(Default)]
pub(crate) struct SaslExchange {
    mechanism: Option<Mechanism>,
    scram: Option<ScramExchange>,
}

/// The result of one token of the client.
pub(crate) enum SaslStep {
    /// The client must answer this token.
    Continue(String),
    Authenticated {
        identity: Identity,
        token: String,
    },
    /// Wrong credentials; `user` is the claimed name.
    Failed {
        user: String,
    },
}

impl SaslExchange {
    pub(crate) fn begin(&mut self, mechanism: Mechanism) {
        *self = SaslExchange {
            mechanism: Some(mechanism),
            scram: None,
        };
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
        match (
            self.mechanism.unwrap_or(Mechanism::Plain),
            self.scram.take(),
        ) {
            (Mechanism::Plain, _) => {
                let (user, password) = credentials(token).unwrap_or_default();
                match authorizer.login(user, password) {
                    Some(identity) => SaslStep::Authenticated {
                        identity,
                        token: String::new(),
                    },
                    None => failed(user),
                }
            }
            (Mechanism::Scram(hash), None) => {
                let Some(first) = ClientFirst::parse(token) else {
                    return failed("");
                };
                let verifiers = authorizer.scram_verifiers(&first.user, hash);
                let (exchange, token) = ScramExchange::start(first, hash, verifiers, challenge);
                self.scram = Some(exchange);
                SaslStep::Continue(token)
            }
            (Mechanism::Scram(_), Some(exchange)) => match exchange.finish(token) {
                Ok((user, token)) => SaslStep::Authenticated {
                    identity: Identity::new(&user),
                    token,
                },
                Err(user) => failed(&user),
            },
        }
    }
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
