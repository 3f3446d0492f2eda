//! Bearer tokens of an identity provider: its published keys are read from a file, and again when the file changes.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use highwater_access::{Key, Keys, SigningKeys, TokenError, TokenPolicy};
use highwater_env::disk;

/// How often the file is checked for changes.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);

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
        let stamp = disk::stamp(&settings.jwks).ok().flatten();
        let signing_keys = RwLock::new(read(&settings)?);
        let tokens = Arc::new(Tokens {
            settings,
            keys,
            signing_keys,
        });
        tokio::spawn(reload(Arc::downgrade(&tokens), stamp));
        Ok(tokens)
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

async fn reload(tokens: Weak<Tokens>, mut known: Option<disk::Stamp>) {
    loop {
        tokio::time::sleep(RELOAD_INTERVAL).await;
        let Some(tokens) = tokens.upgrade() else {
            return;
        };
        let settings = &tokens.settings;
        let found = disk::stamp(&settings.jwks).ok().flatten();
        if found == known {
            continue;
        }
        let path = settings.jwks.display();
        match read(settings) {
            Ok(new) => {
                let keys = tokens.signing_keys.write();
                *keys.expect("no thread panics with the lock") = new;
                known = found;
                tracing::info!("the keys of {path} were reloaded");
            }
            Err(error) => tracing::warn!(%error, "the keys of {path} were not reloaded"),
        }
    }
}
