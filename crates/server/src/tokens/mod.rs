//! Bearer tokens of an identity provider, verified with its published keys (a JWKS).
//!
//! The JWKS is a file, which is read again when it changes, or comes from a URL (`fetch`).

mod fetch;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use highwater_access::{Key, Keys, SigningKeys, TokenError, TokenPolicy};
use highwater_connect::http::{Client, Options};
use highwater_env::{EgressPolicy, disk};
use hyper::Uri;

use crate::reload::WatchedFiles;
pub(crate) use fetch::FetchCounts;
use fetch::{FetchTimes, JwksFetcher};

/// A longer JWKS is refused.
const JWKS_BYTES_MAX: usize = 256 << 10;

/// Tokens that the settings accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    pub jwks: JwksLocation,
    pub policy: TokenPolicy,
}

/// Where the keys of the issuer are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JwksLocation {
    File(PathBuf),
    Url {
        url: Uri,
        /// PEM file with certificates to trust beside those of the system.
        ca: Option<PathBuf>,
    },
}

/// A login with a valid token.
#[derive(Clone, Debug)]
pub struct TokenLogin {
    pub key: Arc<Key>,
    /// When the token is no longer accepted, in milliseconds since 1970.
    pub expires_ms: i64,
}

/// Verifies tokens.
pub struct Tokens {
    policy: TokenPolicy,
    keys: Arc<Keys>,
    signing_keys: RwLock<SigningKeys>,
    source: JwksSource,
}

enum JwksSource {
    File(PathBuf),
    Fetched(JwksFetcher),
}

impl Tokens {
    /// Reads the JWKS file, or begins to fetch the JWKS.
    pub fn open(
        settings: TokenSettings,
        egress: &EgressPolicy,
        keys: Arc<Keys>,
    ) -> io::Result<Arc<Tokens>> {
        let (signing_keys, source) = match settings.jwks {
            JwksLocation::File(path) => {
                let watched = WatchedFiles::new(vec![path.clone()]);
                let signing_keys = parse(&disk::read_to_string(&path)?)?;
                let source = JwksSource::File(path);
                let tokens = Tokens::new(settings.policy, keys, signing_keys, source);
                watched.watch(&tokens, Tokens::reload);
                return Ok(tokens);
            }
            JwksLocation::Url { url, ca } => {
                let client = client(egress, ca.as_deref())?;
                let fetcher = JwksFetcher::new(client, url, FetchTimes::default());
                (SigningKeys::default(), JwksSource::Fetched(fetcher))
            }
        };
        let tokens = Tokens::new(settings.policy, keys, signing_keys, source);
        tokio::spawn(fetch::run(Arc::downgrade(&tokens)));
        Ok(tokens)
    }

    fn new(
        policy: TokenPolicy,
        keys: Arc<Keys>,
        signing_keys: SigningKeys,
        source: JwksSource,
    ) -> Arc<Tokens> {
        Arc::new(Tokens {
            policy,
            keys,
            signing_keys: RwLock::new(signing_keys),
            source,
        })
    }

    fn reload(&self) -> io::Result<()> {
        if let JwksSource::File(path) = &self.source {
            self.replace_signing_keys(parse(&disk::read_to_string(path)?)?);
        }
        Ok(())
    }

    fn replace_signing_keys(&self, new: SigningKeys) {
        let keys = self.signing_keys.write();
        *keys.expect("no thread panics with the lock") = new;
    }

    /// The key that a valid token names. The JWKS is fetched if it lacks the signer; the wait for it is bounded.
    pub async fn verify(&self, token: &str, now_ms: i64) -> Result<TokenLogin, TokenError> {
        match (self.verify_now(token, now_ms), &self.source) {
            (Err(TokenError::UnknownSigner), JwksSource::Fetched(fetcher)) => {
                // Boxed, so that the future of every request stays small.
                Box::pin(fetcher.next_fetch()).await;
                self.verify_now(token, now_ms)
            }
            (verified, _) => verified,
        }
    }

    fn verify_now(&self, token: &str, now_ms: i64) -> Result<TokenLogin, TokenError> {
        let signing_keys = self.signing_keys.read();
        let signing_keys = signing_keys.expect("no thread panics with the lock");
        let token = signing_keys.verify(token, &self.policy, now_ms / 1000)?;
        Ok(TokenLogin {
            key: self.keys.get(&token.key, now_ms).ok_or(TokenError::NoKey)?,
            expires_ms: token.expires_ms,
        })
    }

    /// The fetches of the JWKS so far; `None` if it is a file.
    pub(crate) fn fetch_counts(&self) -> Option<FetchCounts> {
        match &self.source {
            JwksSource::File(_) => None,
            JwksSource::Fetched(fetcher) => Some(fetcher.counts()),
        }
    }
}

fn client(egress: &EgressPolicy, ca: Option<&Path>) -> io::Result<Client> {
    Ok(Client::new(Options {
        timeout: fetch::TIMEOUT,
        answer_bytes_max: JWKS_BYTES_MAX,
        idle_max: 0,
        ca: ca.map(disk::read_to_string).transpose()?,
        egress: egress.clone(),
    }))
}

/// A JWKS without a usable key is refused: it would refuse every token.
fn parse(json: &str) -> io::Result<SigningKeys> {
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    let keys = SigningKeys::parse(json).map_err(|error| invalid(error.to_string()))?;
    match keys.is_empty() {
        true => Err(invalid("it has no key for RS256 or ES256".into())),
        false => Ok(keys),
    }
}
