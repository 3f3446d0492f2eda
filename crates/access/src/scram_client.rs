//! The client side of SCRAM (RFC 5802 and 7677), without channel binding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::scram::ScramHash;

/// The flag of a client without channel binding, and an empty authorization identity.
const HEADER: &str = "n,,";

/// A login that waits for the first message of the server.
pub struct ScramClient {
    hash: ScramHash,
    nonce: String,
    bare: String,
}

/// The second message of the client, and the last one of a server that knows the password.
pub struct ScramProof {
    pub message: String,
    pub server_message: String,
}

impl ScramClient {
    /// `nonce` is random, without a comma.
    pub fn new(hash: ScramHash, user: &str, nonce: &str) -> ScramClient {
        let user = user.replace('=', "=3D").replace(',', "=2C");
        ScramClient {
            hash,
            nonce: nonce.into(),
            bare: format!("n={user},r={nonce}"),
        }
    }

    pub fn first_message(&self) -> String {
        format!("{HEADER}{}", self.bare)
    }

    /// Answers `r=nonce,s=salt,i=iterations`. Takes milliseconds for thousands of iterations; more than
    /// `iterations_max` are refused.
    pub fn prove(
        &self,
        password: &[u8],
        server_first: &str,
        iterations_max: u32,
    ) -> Result<ScramProof, &'static str> {
        let mut fields = server_first.split(',');
        let mut field = |name: &str| fields.next().and_then(|field| field.strip_prefix(name));
        let (Some(nonce), Some(salt), Some(iterations)) = (field("r="), field("s="), field("i="))
        else {
            return Err("the challenge is malformed");
        };
        if nonce.len() <= self.nonce.len() || !nonce.starts_with(&self.nonce) {
            return Err("the challenge is for another client");
        }
        let salt = STANDARD.decode(salt).map_err(|_| "the salt is malformed")?;
        let iterations = iterations.parse::<u32>().ok();
        let iterations = iterations.filter(|count| (1..=iterations_max).contains(count));
        let iterations = iterations.ok_or("the number of iterations is out of range")?;
        let hash = self.hash;
        let salted = hash.salted_password(password, &salt, iterations);
        let client_key = hash.hmac(&salted, &[b"Client Key"]);
        let without_proof = format!("c={},r={nonce}", STANDARD.encode(HEADER));
        let messages = format!("{},{server_first},{without_proof}", self.bare);
        let signature = hash.hmac(&hash.digest(&client_key), &[messages.as_bytes()]);
        let proof = client_key.iter().zip(&signature);
        let proof: Vec<u8> = proof.map(|(key, signature)| key ^ signature).collect();
        let server_key = hash.hmac(&salted, &[b"Server Key"]);
        let server_signature = hash.hmac(&server_key, &[messages.as_bytes()]);
        Ok(ScramProof {
            message: format!("{without_proof},p={}", STANDARD.encode(proof)),
            server_message: format!("v={}", STANDARD.encode(server_signature)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_is_proved() {
        let client = ScramClient::new(ScramHash::Sha256, "user", "rOprNGfwEbeRWgbNEkqO");
        assert_eq!(client.first_message(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let challenge = format!("r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096");
        let proof = client.prove(b"pencil", &challenge, 4096).ok().unwrap();
        assert_eq!(
            proof.message,
            format!("c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
        );
        assert_eq!(
            proof.server_message,
            "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        for wrong in [
            challenge.replace("r=r", "r=s"),
            challenge.replace("i=4096", "i=4097"),
            challenge.replace("i=4096", "i=0"),
            challenge.replace("s=W", "s=!"),
            "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".into(),
            "e=unknown-user".into(),
            String::new(),
        ] {
            assert!(client.prove(b"pencil", &wrong, 4096).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_user_may_have_commas() {
        let client = ScramClient::new(ScramHash::Sha512, "a,b=c", "x");
        assert_eq!(client.first_message(), "n,,n=a=2Cb=3Dc,r=x");
    }
}
