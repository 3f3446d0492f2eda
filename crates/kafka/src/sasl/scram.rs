//! The server side of SCRAM (RFC 5802 and 7677), without channel binding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_access::{ScramHash, ScramVerifier};

use super::unescape;

/// The first message of a client.
#[derive(Debug)]
pub(super) struct ClientFirst {
    pub(super) user: String,
    nonce: String,
    /// The part before the user: flag and authorization identity.
    header: String,
    bare: String,
}

impl ClientFirst {
    /// Reads `n,[a=authzid],n=user,r=nonce`. A client that requires channel binding is refused.
    pub(super) fn parse(message: &str) -> Option<ClientFirst> {
        let (flag, rest) = message.split_once(',')?;
        let (authzid, bare) = rest.split_once(',')?;
        let mut fields = bare.split(',');
        let user = unescape(fields.next()?.strip_prefix("n=")?)?;
        let nonce = fields.next()?.strip_prefix("r=")?;
        let acts_for_itself = match authzid.strip_prefix("a=") {
            Some(authzid) => unescape(authzid)? == user,
            None => authzid.is_empty(),
        };
        let valid = matches!(flag, "n" | "y") && acts_for_itself && !nonce.is_empty();
        valid.then(|| ClientFirst {
            user,
            nonce: nonce.into(),
            header: format!("{flag},{authzid},"),
            bare: bare.into(),
        })
    }
}

/// The random part of an exchange.
#[derive(Debug)]
pub(crate) struct ScramChallenge {
    pub(crate) nonce: String,
    /// The same for all exchanges of a server.
    pub(crate) secret: [u8; 16],
}

impl ScramChallenge {
    /// A salt for a user that does not exist: always the same for the user, like that of a user who does.
    fn salt_of(&self, user: &str) -> Vec<u8> {
        let hash = ScramVerifier::new(ScramHash::Sha256, &self.secret, user.as_bytes(), 1);
        hash.stored_key[..16].to_vec()
    }
}

/// An exchange that waits for the second message of the client.
pub(super) struct ScramExchange {
    first: ClientFirst,
    server_first: String,
    nonce: String,
    hash: ScramHash,
    /// Of all valid secrets of the user.
    verifiers: Vec<ScramVerifier>,
}

impl ScramExchange {
    /// Returns the first message of the server. An unknown user gets one too, and fails at the second, so that users
    /// cannot be guessed.
    pub(super) fn start(
        first: ClientFirst,
        hash: ScramHash,
        verifiers: Vec<ScramVerifier>,
        challenge: &ScramChallenge,
    ) -> (ScramExchange, String) {
        let nonce = format!("{}{}", first.nonce, challenge.nonce);
        let (salt, iterations) = match verifiers.first() {
            Some(verifier) => (verifier.salt.clone(), verifier.iterations),
            None => (challenge.salt_of(&first.user), ScramVerifier::ITERATIONS),
        };
        let salt = STANDARD.encode(salt);
        let server_first = format!("r={nonce},s={salt},i={iterations}");
        let exchange = ScramExchange {
            first,
            server_first: server_first.clone(),
            nonce,
            hash,
            verifiers,
        };
        (exchange, server_first)
    }

    /// Checks `c=header,r=nonce,p=proof`. Returns the user, and the last message of the server if the proof is valid.
    pub(super) fn finish(self, message: &str) -> Result<(String, String), String> {
        match self.signature(message) {
            Some(signature) => Ok((self.first.user, format!("v={}", STANDARD.encode(signature)))),
            None => Err(self.first.user),
        }
    }

    fn signature(&self, message: &str) -> Option<Vec<u8>> {
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut fields = without_proof.split(',');
        let header = fields.next()?.strip_prefix("c=")?;
        let nonce = fields.next()?.strip_prefix("r=")?;
        if header != STANDARD.encode(&self.first.header) || nonce != self.nonce {
            return None;
        }
        let proof = STANDARD.decode(proof).ok()?;
        let (first, server_first) = (&self.first.bare, &self.server_first);
        let auth_message = format!("{first},{server_first},{without_proof}");
        let mut verifiers = self.verifiers.iter();
        verifiers.find_map(|own| own.check_proof(self.hash, auth_message.as_bytes(), &proof))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn challenge(nonce: &str) -> ScramChallenge {
        let (nonce, secret) = (nonce.into(), [7; 16]);
        ScramChallenge { nonce, secret }
    }

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_succeeds() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::new(ScramHash::Sha256, b"pencil", &salt, 4096);
        let start = |verifiers| {
            let first = ClientFirst::parse("n,,n=user,r=rOprNGfwEbeRWgbNEkqO").unwrap();
            let challenge = challenge("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0");
            ScramExchange::start(first, ScramHash::Sha256, verifiers, &challenge)
        };
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let last = format!("c=biws,r={nonce},p={proof}");
        let (exchange, server_first) = start(vec![verifier.clone()]);
        assert_eq!(
            server_first,
            format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
        );
        let (user, server_last) = exchange.finish(&last).unwrap();
        assert_eq!(user, "user");
        assert_eq!(
            server_last,
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        for wrong in [
            last.replace("biws", "eSws"),
            last.replace("r=r", "r=s"),
            last.replace("p=d", "p=e"),
            "c=biws".into(),
        ] {
            let (exchange, _) = start(vec![verifier.clone()]);
            assert_eq!(exchange.finish(&wrong), Err("user".into()), "{wrong}");
        }
        let newer = ScramVerifier::new(ScramHash::Sha256, b"crayon", &salt, 4096);
        let (exchange, _) = start(vec![newer, verifier]);
        assert!(exchange.finish(&last).is_ok(), "the previous secret");
        let (unknown_user, server_first) = start(Vec::new());
        assert_eq!(server_first, start(Vec::new()).1);
        assert!(unknown_user.finish(&last).is_err());
    }

    #[test]
    fn a_first_message_acts_for_its_own_user_without_channel_binding() {
        let user = |message: &str| ClientFirst::parse(message).map(|first| first.user);
        assert_eq!(user("n,,n=a=2Cb=3Dc,r=x").as_deref(), Some("a,b=c"));
        assert_eq!(user("y,a=u,n=u,r=x").as_deref(), Some("u"));
        for wrong in [
            "p=tls-unique,,n=u,r=x",
            "n,a=other,n=u,r=x",
            "n,,n=u,r=",
            "n,,r=x",
            "n,,n=a=b,r=x",
            "",
        ] {
            assert_eq!(user(wrong), None, "{wrong}");
        }
    }
}
