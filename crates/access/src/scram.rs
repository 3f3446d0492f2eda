//! Verifiers of SCRAM (RFC 5802): they prove that a client knows a secret and do not hold it.
//!
//! A verifier also checks a secret that a client sends as it is (PLAIN, Basic, Bearer).

use hmac::{Hmac, KeyInit, Mac};
use pbkdf2::pbkdf2_hmac_array;
use sha2::{Digest, Sha256, Sha512};
use subtle::ConstantTimeEq;

/// The hash of a SCRAM mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScramHash {
    Sha256,
    Sha512,
}

impl ScramHash {
    pub(crate) fn hmac(self, key: &[u8], text: &[&[u8]]) -> Vec<u8> {
        match self {
            ScramHash::Sha256 => hmac::<Hmac<Sha256>>(key, text),
            ScramHash::Sha512 => hmac::<Hmac<Sha512>>(key, text),
        }
    }

    pub(crate) fn digest(self, text: &[u8]) -> Vec<u8> {
        match self {
            ScramHash::Sha256 => Sha256::digest(text).to_vec(),
            ScramHash::Sha512 => Sha512::digest(text).to_vec(),
        }
    }

    /// The bytes of its digests.
    pub fn digest_len(self) -> usize {
        match self {
            ScramHash::Sha256 => 32,
            ScramHash::Sha512 => 64,
        }
    }

    pub(crate) fn salted_password(self, secret: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        match self {
            ScramHash::Sha256 => pbkdf2_hmac_array::<Sha256, 32>(secret, salt, iterations).to_vec(),
            ScramHash::Sha512 => pbkdf2_hmac_array::<Sha512, 64>(secret, salt, iterations).to_vec(),
        }
    }
}

fn hmac<M: Mac + KeyInit>(key: &[u8], text: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    text.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

/// The stored verifier of a secret, for one hash.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    pub salt: Vec<u8>,
    pub iterations: u32,
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

impl ScramVerifier {
    /// The least that RFC 7677 allows. Generated secrets are random, so more would only cost logins time.
    pub const ITERATIONS: u32 = 4096;

    pub fn new(hash: ScramHash, secret: &[u8], salt: &[u8], iterations: u32) -> ScramVerifier {
        let password = hash.salted_password(secret, salt, iterations);
        ScramVerifier::from_salted_password(hash, &password, salt, iterations)
    }

    /// The verifier of a secret that was salted and hashed already.
    pub fn from_salted_password(
        hash: ScramHash,
        password: &[u8],
        salt: &[u8],
        iterations: u32,
    ) -> ScramVerifier {
        let client_key = hash.hmac(password, &[b"Client Key"]);
        ScramVerifier {
            salt: salt.to_vec(),
            iterations,
            stored_key: hash.digest(&client_key),
            server_key: hash.hmac(password, &[b"Server Key"]),
        }
    }

    /// Whether the verifier is that of `secret`. Takes about a millisecond.
    pub fn matches(&self, hash: ScramHash, secret: &[u8]) -> bool {
        let given = ScramVerifier::new(hash, secret, &self.salt, self.iterations);
        given.stored_key.ct_eq(&self.stored_key).into()
    }

    /// Checks the proof of a client over the messages so far, and returns the signature that proves the server to it.
    pub fn check_proof(&self, hash: ScramHash, messages: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let mut client_key = hash.hmac(&self.stored_key, &[messages]);
        if proof.len() != client_key.len() {
            return None;
        }
        client_key
            .iter_mut()
            .zip(proof)
            .for_each(|(own, given)| *own ^= given);
        let same: bool = hash.digest(&client_key).ct_eq(&self.stored_key).into();
        same.then(|| hash.hmac(&self.server_key, &[messages]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn the_example_of_the_rfc_is_verified() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::new(ScramHash::Sha256, b"pencil", &salt, 4096);
        let messages = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let mut proof = STANDARD.decode(proof).unwrap();
        let check = |proof: &[u8]| {
            let signature = verifier.check_proof(ScramHash::Sha256, messages.as_bytes(), proof);
            signature.map(|signature| STANDARD.encode(signature))
        };
        let expected = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(check(&proof).as_deref(), Some(expected));
        proof[0] ^= 1;
        assert_eq!(check(&proof), None);
        assert_eq!(check(&proof[1..]), None);
    }

    #[test]
    fn a_verifier_matches_its_secret_only() {
        for hash in [ScramHash::Sha256, ScramHash::Sha512] {
            let verifier = ScramVerifier::new(hash, b"s3cret", b"salt", 2);
            assert!(verifier.matches(hash, b"s3cret"));
            assert!(!verifier.matches(hash, b"s3cres"));
        }
    }
}
