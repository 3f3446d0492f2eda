//! One secret of a key: as it is, or as verifiers that do not hold it.

use std::fmt;
use std::sync::OnceLock;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::scram::{ScramHash, ScramVerifier};

pub const SECRET_LEN_MIN: usize = 6;

/// A secret in memory: never the secret itself, so that comparing a request's costs one hash.
pub(crate) type SecretDigest = [u8; 32];

pub(crate) fn digest(secret: &[u8]) -> SecretDigest {
    keyed_hash(b"highwater secret", secret)
}

fn keyed_hash(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// One secret of a key.
#[derive(Clone)]
pub struct KeySecret {
    /// Known for keys of the settings, and for stored keys that sign.
    plain: Option<Vec<u8>>,
    sha256: OnceLock<ScramVerifier>,
    sha512: OnceLock<ScramVerifier>,
    /// Known once a client has shown the right secret.
    digest: OnceLock<SecretDigest>,
}

impl KeySecret {
    pub fn plain(secret: &str) -> KeySecret {
        KeySecret {
            plain: Some(secret.as_bytes().to_vec()),
            sha256: OnceLock::new(),
            sha512: OnceLock::new(),
            digest: OnceLock::from(digest(secret.as_bytes())),
        }
    }

    /// A secret that only its verifiers are stored of. One that was set by a client of Kafka has the verifier of one hash.
    pub fn stored(sha256: Option<ScramVerifier>, sha512: Option<ScramVerifier>) -> KeySecret {
        let known = |verifier: Option<ScramVerifier>| match verifier {
            Some(verifier) => OnceLock::from(verifier),
            None => OnceLock::new(),
        };
        KeySecret {
            plain: None,
            sha256: known(sha256),
            sha512: known(sha512),
            digest: OnceLock::new(),
        }
    }

    /// The secret itself, for signatures.
    pub(crate) fn as_plain(&self) -> Option<&[u8]> {
        self.plain.as_deref()
    }

    /// The verifier, if the secret has one of this hash; that of a plain secret has the salt of the key `name`.
    pub(crate) fn verifier(&self, hash: ScramHash, name: &str) -> Option<&ScramVerifier> {
        let verifier = match hash {
            ScramHash::Sha256 => &self.sha256,
            ScramHash::Sha512 => &self.sha512,
        };
        let Some(secret) = self.plain.as_deref() else {
            return verifier.get();
        };
        Some(verifier.get_or_init(|| {
            // A salt must differ between keys, and need not be kept secret.
            let salt = &keyed_hash(b"highwater salt", name.as_bytes())[..16];
            ScramVerifier::new(hash, secret, salt, ScramVerifier::ITERATIONS)
        }))
    }

    /// Whether the secret with this digest is the right one; `None` if only a slow check can tell.
    pub(crate) fn matches_digest(&self, given: &SecretDigest) -> Option<bool> {
        let known = self.digest.get()?;
        Some(known.ct_eq(given).into())
    }

    /// Whether `secret`, whose digest is given too, is the right one. Takes a millisecond until the right one was seen.
    pub(crate) fn matches(&self, secret: &[u8], given: &SecretDigest) -> bool {
        if let Some(same) = self.matches_digest(given) {
            return same;
        }
        // A secret without a digest is a stored one, which has at least one verifier.
        let sha256 = self.sha256.get().map(|known| (known, ScramHash::Sha256));
        let sha512 = self.sha512.get().map(|known| (known, ScramHash::Sha512));
        let known = sha256.or(sha512);
        let same = known.is_some_and(|(verifier, hash)| verifier.matches(hash, secret));
        if same {
            self.digest.get_or_init(|| *given);
        }
        same
    }
}

impl fmt::Debug for KeySecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("KeySecret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(key: &KeySecret, secret: &str) -> bool {
        key.matches(secret.as_bytes(), &digest(secret.as_bytes()))
    }

    // proves G4
    #[test]
    fn a_stored_secret_is_checked_by_its_verifier_and_then_by_its_digest() {
        let verifier = |hash| Some(ScramVerifier::new(hash, b"s3cret", b"salt", 2));
        let (sha256, sha512) = (verifier(ScramHash::Sha256), verifier(ScramHash::Sha512));
        for (sha256, sha512) in [
            (sha256.clone(), sha512.clone()),
            (sha256, None),
            (None, sha512),
        ] {
            let stored = KeySecret::stored(sha256.clone(), sha512.clone());
            assert!(!matches(&stored, "wrong"));
            assert!(stored.digest.get().is_none());
            assert!(matches(&stored, "s3cret"));
            assert!(stored.digest.get().is_some());
            assert!(matches(&stored, "s3cret") && !matches(&stored, "wrong"));
            assert_eq!(stored.as_plain(), None);
            let of = |hash| stored.verifier(hash, "app").cloned();
            assert!(of(ScramHash::Sha256) == sha256 && of(ScramHash::Sha512) == sha512);
        }
        let none = KeySecret::stored(None, None);
        assert!(!matches(&none, "") && none.verifier(ScramHash::Sha256, "app").is_none());
    }

    #[test]
    fn a_plain_secret_has_verifiers_too() {
        let plain = KeySecret::plain("s3cret");
        assert!(matches(&plain, "s3cret") && !matches(&plain, "s3cres"));
        for hash in [ScramHash::Sha256, ScramHash::Sha512] {
            let of = |key: &KeySecret, name| key.verifier(hash, name).cloned().unwrap();
            let verifier = of(&plain, "app");
            assert!(verifier.matches(hash, b"s3cret"));
            let other = KeySecret::plain("newer!");
            assert_eq!(of(&other, "app").salt, verifier.salt);
            let other_key = KeySecret::plain("s3cret");
            assert_ne!(of(&other_key, "apq").salt, verifier.salt);
        }
    }
}
