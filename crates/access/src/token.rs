//! Bearer tokens: JSON Web Tokens of an identity provider, signed with one of its published keys (a JWKS).
//!
//! A token names a key of the node by one of its claims, and has that key's rights. Only RS256 and ES256 are accepted, with
//! an expiry, the issuer and the audience of the settings; `none` and symmetric signatures are not.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

/// A token longer than this is refused unread.
const TOKEN_LEN_MAX: usize = 16 << 10;

/// Clocks of the issuer and of the node may differ by this much.
const CLOCK_SKEW_SECONDS: i64 = 60;

/// Which tokens are accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPolicy {
    pub issuer: String,
    pub audience: String,
    /// The claim with the name of the key.
    pub key_claim: String,
}

/// Why a token is refused. The message is safe to send to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is malformed")]
    Malformed,
    #[error("the token is signed by an unknown key, or in an unsupported way")]
    UnknownSigner,
    #[error("the signature of the token is wrong")]
    Signature,
    #[error("the token has expired, or is not valid yet")]
    Expired,
    #[error("the token is of another issuer, or for another audience")]
    OtherAudience,
    #[error("the token names no key of this node")]
    NoKey,
}

/// The part of a valid token that a login needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedToken {
    /// The name of a key.
    pub key: String,
    /// When the token is no longer accepted, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// The public keys of an identity provider.
#[derive(Debug, Default)]
pub struct SigningKeys {
    keys: Vec<SigningKey>,
}

#[derive(Debug)]
struct SigningKey {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Debug)]
enum PublicKey {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point of P-256.
    P256(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Value,
    exp: i64,
    #[serde(default)]
    nbf: i64,
    #[serde(flatten)]
    more: serde_json::Map<String, Value>,
}

fn decode(part: &str) -> Result<Vec<u8>, TokenError> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| TokenError::Malformed)
}

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, TokenError> {
    serde_json::from_slice(json).map_err(|_| TokenError::Malformed)
}

impl SigningKeys {
    /// Reads a JWKS. Keys of other kinds are left out.
    pub fn parse(json: &str) -> Result<SigningKeys, serde_json::Error> {
        let set: KeySet = serde_json::from_str(json)?;
        let keys = set.keys.iter().filter_map(SigningKey::parse).collect();
        Ok(SigningKeys { keys })
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Checks signature, issuer, audience and times of a token.
    pub fn verify(
        &self,
        token: &str,
        policy: &TokenPolicy,
        now_seconds: i64,
    ) -> Result<VerifiedToken, TokenError> {
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        if token.len() > TOKEN_LEN_MAX {
            return Err(TokenError::Malformed);
        }
        let header: Header = parse(&decode(header)?)?;
        let signature = decode(signature)?;
        let of_id = |key: &&SigningKey| header.kid.is_none() || header.kid == key.id;
        let mut fitting = self
            .keys
            .iter()
            .filter(of_id)
            .filter(|key| key.public.algorithm() == header.alg)
            .peekable();
        fitting.peek().ok_or(TokenError::UnknownSigner)?;
        if !fitting.any(|key| key.public.verifies(signed.as_bytes(), &signature)) {
            return Err(TokenError::Signature);
        }
        let claims: Claims = parse(&decode(claims)?)?;
        claims.check(policy, now_seconds)
    }
}

impl Claims {
    fn check(self, policy: &TokenPolicy, now_seconds: i64) -> Result<VerifiedToken, TokenError> {
        let begins = self.nbf.saturating_sub(CLOCK_SKEW_SECONDS);
        let ends = self.exp.saturating_add(CLOCK_SKEW_SECONDS);
        if now_seconds < begins || now_seconds >= ends {
            return Err(TokenError::Expired);
        }
        let is_ours = |audience: &Value| audience.as_str() == Some(&policy.audience);
        let for_us = match &self.aud {
            Value::Array(audiences) => audiences.iter().any(is_ours),
            audience => is_ours(audience),
        };
        if self.iss != policy.issuer || !for_us {
            return Err(TokenError::OtherAudience);
        }
        let name = self.more.get(&policy.key_claim).and_then(Value::as_str);
        Ok(VerifiedToken {
            key: name.ok_or(TokenError::NoKey)?.to_owned(),
            expires_ms: ends.saturating_mul(1000),
        })
    }
}

impl SigningKey {
    fn parse(key: &Value) -> Option<SigningKey> {
        let text = |name: &str| key.get(name)?.as_str();
        let bytes = |name: &str| URL_SAFE_NO_PAD.decode(text(name)?).ok();
        if text("use").is_some_and(|usage| usage != "sig") {
            return None;
        }
        let public = match (text("kty")?, text("crv")) {
            ("RSA", _) => PublicKey::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            },
            ("EC", Some("P-256")) => PublicKey::P256([vec![4], bytes("x")?, bytes("y")?].concat()),
            _ => return None,
        };
        Some(SigningKey {
            id: text("kid").map(str::to_owned),
            public,
        })
    }
}

impl PublicKey {
    fn algorithm(&self) -> &'static str {
        match self {
            PublicKey::Rsa { .. } => "RS256",
            PublicKey::P256(_) => "ES256",
        }
    }

    fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        let verified = match self {
            PublicKey::Rsa { n, e } => {
                let key = RsaPublicKeyComponents { n, e };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            PublicKey::P256(point) => {
                let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
                key.verify(message, signature)
            }
        };
        verified.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with Python's cryptography package.
    const VECTORS: &str = include_str!("token_vectors.json");

    fn vectors() -> (Value, SigningKeys) {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        let keys = SigningKeys::parse(&vectors["jwks"].to_string()).unwrap();
        (vectors, keys)
    }

    fn verify(name: &str, now_seconds: i64) -> Result<VerifiedToken, TokenError> {
        let (vectors, keys) = vectors();
        let policy = TokenPolicy {
            issuer: "https://id.example".into(),
            audience: "highwater".into(),
            key_claim: "sub".into(),
        };
        keys.verify(vectors[name].as_str().unwrap(), &policy, now_seconds)
    }

    // proves G4
    #[test]
    fn a_signed_token_names_its_key() {
        let app = VerifiedToken {
            key: "app".into(),
            expires_ms: 2_060_000,
        };
        assert_eq!(verify("rsa", 1500), Ok(app.clone()));
        assert_eq!(verify("ec", 1500), Ok(app.clone()));
        assert_eq!(verify("rsa", 2059), Ok(app), "clocks differ");
    }

    // proves G4
    #[test]
    fn every_other_token_is_refused() {
        for (name, now, expected) in [
            ("rsa", 2060, TokenError::Expired),
            ("rsa", 900, TokenError::Expired),
            ("none", 1500, TokenError::UnknownSigner),
            ("unknown_signer", 1500, TokenError::UnknownSigner),
            ("other_audience", 1500, TokenError::OtherAudience),
            ("other_issuer", 1500, TokenError::OtherAudience),
            ("no_key", 1500, TokenError::NoKey),
        ] {
            assert_eq!(verify(name, now), Err(expected), "{name}");
        }
        let (vectors, keys) = vectors();
        let policy = TokenPolicy {
            issuer: "https://id.example".into(),
            audience: "highwater".into(),
            key_claim: "sub".into(),
        };
        let rsa = vectors["rsa"].as_str().unwrap();
        let ec = vectors["ec"].as_str().unwrap();
        let (signed, _) = rsa.rsplit_once('.').unwrap();
        let (_, other) = ec.rsplit_once('.').unwrap();
        let forged = format!("{signed}.{other}");
        assert_eq!(
            keys.verify(&forged, &policy, 1500),
            Err(TokenError::Signature)
        );
        for text in ["", "a", "a.b", "a.b.c", "..", "é.é.é", &"a".repeat(20_000)] {
            assert_eq!(
                keys.verify(text, &policy, 1500),
                Err(TokenError::Malformed),
                "{text}"
            );
        }
    }
}
