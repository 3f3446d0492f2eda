//! Bearer tokens of an identity provider: its published keys are read from a file, and again when the file changes.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use highwater_access::{Key, Keys, SigningKeys, TokenError, TokenPolicy};
use highwater_env::disk;

use crate::reload::WatchedFiles;

/// Tokens that the settings accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// A JWKS file.
    pub jwks: PathBuf,
    pub policy: TokenPolicy,
}

/// Verifies tokens.
#[derive(Debug)]
pub struct Tokens {
    settings: TokenSettings,
    keys: Arc<Keys>,
    signing_keys: RwLock<SigningKeys>,
}

impl Tokens {
    pub fn open(settings: TokenSettings, keys: Arc<Keys>) -> io::Result<Arc<Tokens>> {
        let watched = WatchedFiles::new(vec![settings.jwks.clone()]);
        let signing_keys = RwLock::new(read(&settings)?);
        let tokens = Arc::new(Tokens {
            settings,
            keys,
            signing_keys,
        });
        watched.watch(&tokens, Tokens::reload);
        Ok(tokens)
    }

    fn reload(&self) -> io::Result<()> {
        let new = read(&self.settings)?;
        let mut keys = self
            .signing_keys
            .write()
            .expect("no thread panics with the lock");
        *keys = new;
        Ok(())
    }

    /// The key that a valid token names.
    pub fn verify(&self, token: &str, now_ms: i64) -> Result<Arc<Key>, TokenError> {
        let signing_keys = self.signing_keys.read();
        let signing_keys = signing_keys.expect("no thread panics with the lock");
        let name = signing_keys.verify(token, &self.settings.policy, now_ms / 1000)?;
        self.keys.get(&name, now_ms).ok_or(TokenError::NoKey)
    }
}

fn read(settings: &TokenSettings) -> io::Result<SigningKeys> {
    let text = disk::read_to_string(&settings.jwks)?;
    SigningKeys::parse(&text).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
