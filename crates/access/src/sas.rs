//! Shared access signatures, as Event Hubs clients send them:
//! `SharedAccessSignature sr=<uri>&sig=<signature>&se=<expiry>&skn=<key name>`.
//!
//! The signature is HMAC-SHA256 over the encoded URI, a line feed and the expiry. So a token grants access to one
//! resource until it expires, without the secret.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::percent::{percent_decode, percent_encode};
use crate::{Key, KeySecret, Keys};

/// Why a token is refused. The message is safe to send to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SasError {
    #[error("the token lacks one of sr, sig, se and skn")]
    Incomplete,
    #[error("the key or the signature is wrong")]
    Wrong,
    #[error("the token has expired")]
    Expired,
    #[error("the token is for another resource")]
    OtherResource,
}

/// A token whose signature and expiry are right.
#[derive(Clone, Debug)]
pub struct SignedGrant {
    pub key: Arc<Key>,
    /// Seconds since 1970.
    pub expires_seconds: i64,
    /// The URI that the token is for.
    resource: String,
}

impl SignedGrant {
    /// Whether the token is for `path` or something above it. Clients of AMQP write the words of a path in any case,
    /// and some the whole path in lower case.
    pub fn covers_ignoring_case(&self, path: &str) -> bool {
        covers(&self.resource, path, str::eq_ignore_ascii_case)
    }
}

/// The key that signed `token`, if the token is valid at `now_seconds` for the resource at `path`.
pub fn verify(
    keys: &Keys,
    token: &str,
    path: &str,
    now_seconds: i64,
) -> Result<Arc<Key>, SasError> {
    let grant = verify_signature(keys, token, now_seconds)?;
    match covers(&grant.resource, path, |granted, path| granted == path) {
        true => Ok(grant.key),
        false => Err(SasError::OtherResource),
    }
}

/// The grant of `token`, for whatever resource, if the token is valid at `now_seconds`.
pub fn verify_signature(
    keys: &Keys,
    token: &str,
    now_seconds: i64,
) -> Result<SignedGrant, SasError> {
    let field = |name: &str| {
        let of = |part: &'_ str| {
            part.split_once('=')
                .filter(|(n, _)| *n == name)
                .map(|(_, v)| v.len())
        };
        let part = token.split('&').find(|part| of(part).is_some());
        part.map(|part| &part[name.len() + 1..])
    };
    let fields = (field("sr"), field("sig"), field("se"), field("skn"));
    let (Some(resource), Some(signature), Some(expiry), Some(name)) = fields else {
        return Err(SasError::Incomplete);
    };
    let key = keys.get(&percent_decode(name), now_seconds.saturating_mul(1000));
    let key = key.ok_or(SasError::Wrong)?;
    let signature = STANDARD
        .decode(percent_decode(signature).as_bytes())
        .map_err(|_| SasError::Wrong)?;
    let signs = |secret: &KeySecret| {
        let secret = secret.as_plain();
        secret.is_some_and(|secret| {
            let signed = mac(secret, resource, expiry).verify_slice(&signature);
            signed.is_ok()
        })
    };
    if !key.secrets.iter().any(signs) {
        return Err(SasError::Wrong);
    }
    let expires_seconds = expiry.parse::<i64>().map_err(|_| SasError::Incomplete)?;
    if expires_seconds <= now_seconds {
        return Err(SasError::Expired);
    }
    Ok(SignedGrant {
        key,
        expires_seconds,
        resource: percent_decode(resource).into_owned(),
    })
}

/// A token for `resource`, such as `http://localhost:8080/telemetry`.
pub fn sign(name: &str, secret: &[u8], resource: &str, expiry_seconds: i64) -> String {
    let resource = percent_encode(resource);
    let expiry = expiry_seconds.to_string();
    let signature = mac(secret, &resource, &expiry).finalize().into_bytes();
    let signature = percent_encode(&STANDARD.encode(signature));
    let name = percent_encode(name);
    format!("SharedAccessSignature sr={resource}&sig={signature}&se={expiry}&skn={name}")
}

fn mac(secret: &[u8], resource: &str, expiry: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes a key of any length");
    mac.update(resource.as_bytes());
    mac.update(b"\n");
    mac.update(expiry.as_bytes());
    mac
}

/// A token for a resource covers the paths below it; `same` compares paths. Scheme and host are ignored: a node has
/// many names, and the secret is its own. So is a query, which some clients sign with the path.
fn covers(resource: &str, path: &str, same: impl Fn(&str, &str) -> bool) -> bool {
    let below = resource
        .split_once("://")
        .map_or(resource, |(_, rest)| rest);
    let granted = below.split_once('/').map_or("", |(_, path)| path);
    let granted = granted.split_once('?').map_or(granted, |(path, _)| path);
    let granted = granted.trim_end_matches('/');
    let path = path.trim_start_matches('/');
    match path.get(..granted.len()) {
        Some(head) if same(granted, head) => {
            granted.is_empty()
                || path.len() == granted.len()
                || path[granted.len()..].starts_with('/')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KeyScope, Rights};

    fn keys() -> Keys {
        let key = Key::new("Root Key", "s3cret", Rights::ALL, KeyScope::UNLIMITED);
        Keys::new(vec![key])
    }

    fn check(token: &str, path: &str) -> Result<String, SasError> {
        let token = token.strip_prefix("SharedAccessSignature ").unwrap();
        verify(&keys(), token, path, 1000).map(|key| key.name.clone())
    }

    #[test]
    fn a_token_is_good_for_its_resource_until_it_expires() {
        let token = sign("Root Key", b"s3cret", "sb://any.host/telemetry", 1001);
        for path in [
            "/telemetry",
            "/telemetry/messages",
            "/telemetry/publishers/p/messages",
        ] {
            assert_eq!(check(&token, path), Ok("Root Key".into()), "{path}");
        }
        for path in ["/telemetry2/messages", "/Telemetry", "/other", "/"] {
            assert_eq!(check(&token, path), Err(SasError::OtherResource), "{path}");
        }
        let old = sign("Root Key", b"s3cret", "sb://any.host/telemetry", 1000);
        assert_eq!(check(&old, "/telemetry"), Err(SasError::Expired));
    }

    #[test]
    fn a_grant_covers_paths_in_any_case() {
        let token = sign("Root Key", b"s3cret", "amqp://any.host/telemetry", 1001);
        let token = token.strip_prefix("SharedAccessSignature ").unwrap();
        let grant = verify_signature(&keys(), token, 1000).unwrap();
        assert_eq!(
            (&*grant.key.name, grant.expires_seconds),
            ("Root Key", 1001)
        );
        assert!(grant.covers_ignoring_case("Telemetry/ConsumerGroups/$Default/Partitions/0"));
        assert!(!grant.covers_ignoring_case("telemetry2"));
        let expired = verify_signature(&keys(), token, 1001).unwrap_err();
        assert_eq!(expired, SasError::Expired);
    }

    #[test]
    fn a_token_for_the_node_covers_everything() {
        for resource in [
            "http://localhost:8080",
            "http://localhost:8080/",
            "localhost",
        ] {
            let token = sign("Root Key", b"s3cret", resource, 2000);
            assert!(check(&token, "/a/messages").is_ok(), "{resource}");
        }
    }

    #[test]
    fn a_changed_token_is_refused() {
        let good = sign("Root Key", b"s3cret", "http://h/a", 2000);
        assert_eq!(
            check(&good.replace("se=2000", "se=2001"), "/a"),
            Err(SasError::Wrong)
        );
        assert_eq!(
            check(&good.replace("%2Fa", "%2Fb"), "/b"),
            Err(SasError::Wrong)
        );
        assert_eq!(
            check(&good.replace("Root", "Boot"), "/a"),
            Err(SasError::Wrong)
        );
        assert_eq!(
            check(&good.replace("&se=2000", ""), "/a"),
            Err(SasError::Incomplete)
        );
        let other = sign("Root Key", b"s3cres", "http://h/a", 2000);
        assert_eq!(check(&other, "/a"), Err(SasError::Wrong));
    }

    /// Computed with Python's hmac module.
    #[test]
    fn the_signature_is_that_of_other_libraries() {
        let token = sign("k", b"secret", "http://h/a b", 1_700_000_000);
        assert_eq!(
            token,
            "SharedAccessSignature sr=http%3A%2F%2Fh%2Fa%20b&sig=VXXrS4Kf0ai%2BGdKfaco15hU7aEyV51Ww3CiTTmcX2nI%3D&se=1700000000&skn=k"
        );
    }
}
