//! Keys that are added, rotated and revoked while the node runs, and the rules for everybody.
//!
//! They are in `keys.json` in the data folder, which a node creates for its owner alone. It has the verifiers of
//! secrets, and a secret itself only if the key signs shared access signatures. A change is durable before it takes
//! effect.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_access::{AccessRule, Keys, Right};
use highwater_env::disk;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, MutexGuard, watch};

mod record;
mod users;

pub use record::{KeyRecord, KeySpec};
pub(crate) use users::UserUpdate;

/// Why a key cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("there is no key `{0}`")]
    Unknown(String),
    #[error("there is a key `{0}` already")]
    Exists(String),
    #[error("key `{0}` is in the settings")]
    InSettings(String),
    #[error("`{0}` cannot name a key")]
    Name(String),
    #[error("`{0}` is a certificate of another key")]
    Certificate(String),
    #[error("`{0}` is the last key: without it, everyone could use the node")]
    Last(String),
    #[error(
        "the node has no keys, so every client may do everything: its first key must have rights"
    )]
    First,
    #[error("the node has {KEYS_MAX} stored keys, which is the limit")]
    TooMany,
    #[error(
        "`{0}` would have more than {GRANTS_MAX} rights and rules over single names, which is the limit"
    )]
    TooManyGrants(String),
    #[error(
        "key `{0}` may manage the node and could take the rule back, so rules that deny do not hold for it"
    )]
    ManagesNode(String),
    #[error("key `{0}` signs with its secret, which the node must know: rotate it")]
    Signs(String),
    #[error("key `{0}` has no such credential")]
    NoCredential(String),
    #[error("key `{0}` has a right to {1} that the client has not, and cannot give or take over")]
    Forbidden(String, Right),
    #[error("keys.json cannot be written: {0}")]
    Storage(#[from] io::Error),
}

/// The keys that are not in the settings.
pub struct StoredKeys {
    path: PathBuf,
    keys: Arc<Keys>,
    records: Mutex<Vec<KeyRecord>>,
    changes: watch::Sender<()>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    version: u32,
    keys: Vec<KeyRecord>,
    /// The rules for everybody.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    everybody: Vec<AccessRule>,
}

const VERSION: u32 = 1;

/// All of them are read for a list and written with every change.
const KEYS_MAX: usize = 10_000;

/// All of them may be looked at for every request of the key. The rules for everybody are as many.
const GRANTS_MAX: usize = 1_000;

impl StoredKeys {
    /// Reads the stored keys and rules and adds them to `keys`, which has the keys of the settings.
    pub fn open(folder: &Path, keys: Arc<Keys>) -> io::Result<StoredKeys> {
        let path = folder.join("keys.json");
        let (records, everybody) = read(&path)?;
        keys.set_everybody(everybody);
        for record in &records {
            let key = record.key().map_err(|error| invalid(&path, error))?;
            if !keys.add(key) {
                tracing::warn!(
                    "key `{}` of keys.json is in the settings too, which count",
                    record.spec.name
                );
            }
        }
        Ok(StoredKeys {
            path,
            keys,
            records: Mutex::new(records),
            changes: watch::Sender::new(()),
        })
    }

    /// Marked as changed after every change of a key.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    pub fn keys(&self) -> &Arc<Keys> {
        &self.keys
    }

    pub async fn list(&self) -> Vec<KeyRecord> {
        self.records.lock().await.clone()
    }

    /// Adds a key and returns its secret, which cannot be read later.
    pub async fn add(&self, spec: KeySpec, now_ms: i64) -> Result<String, KeyError> {
        let name = spec.name.clone();
        check_name(&name)?;
        let records = self.records.lock().await;
        if self.keys.contains(&name) {
            return Err(KeyError::Exists(name));
        }
        if records.len() >= KEYS_MAX {
            return Err(KeyError::TooMany);
        }
        let known = self.keys.list();
        let is_taken = |name: &&String| known.iter().any(|key| key.certificates.contains(name));
        if let Some(taken) = spec.certificates.iter().find(is_taken) {
            return Err(KeyError::Certificate(taken.clone()));
        }
        let mut record = KeyRecord::new(spec, now_ms)?;
        let secret = record.add_secret()?;
        let mut changed = records.clone();
        changed.push(record);
        self.store(records, changed, &name)?;
        Ok(secret)
    }

    /// Gives a key a new secret, and returns it. The previous one stays valid if `keep_previous`; older ones do not.
    pub async fn rotate(&self, name: &str, keep_previous: bool) -> Result<String, KeyError> {
        let records = self.records.lock().await;
        let at = self.position(&records, name)?;
        let mut changed = records.clone();
        let record = &mut changed[at];
        record.drop_old_secrets(keep_previous);
        let secret = record.add_secret()?;
        self.store(records, changed, name)?;
        Ok(secret)
    }

    pub async fn revoke(&self, name: &str) -> Result<(), KeyError> {
        let records = self.records.lock().await;
        let at = self.position(&records, name)?;
        let mut changed = records.clone();
        changed.remove(at);
        self.store(records, changed, name)
    }

    /// Stores the records, and then applies the change of the key `name`.
    fn store(
        &self,
        mut records: MutexGuard<'_, Vec<KeyRecord>>,
        changed: Vec<KeyRecord>,
        name: &str,
    ) -> Result<(), KeyError> {
        let record = changed.iter().find(|record| record.spec.name == name);
        let key = record.map(|record| record.key().map_err(|_| KeyError::Name(name.to_owned())));
        let key = key.transpose()?;
        if key.is_none() && self.keys.list().len() == 1 {
            return Err(KeyError::Last(name.to_owned()));
        }
        write(&self.path, &changed, self.keys.everybody().list())?;
        *records = changed;
        match key {
            Some(key) => self.keys.replace(key),
            None => self.keys.remove(name),
        }
        self.changes.send_replace(());
        Ok(())
    }

    fn position(&self, records: &[KeyRecord], name: &str) -> Result<usize, KeyError> {
        let at = records.iter().position(|record| record.spec.name == name);
        at.ok_or_else(|| match self.keys.contains(name) {
            true => KeyError::InSettings(name.to_owned()),
            false => KeyError::Unknown(name.to_owned()),
        })
    }
}

fn check_name(name: &str) -> Result<(), KeyError> {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match name.is_empty() || name == "anonymous" || !name.chars().all(is_valid) {
        true => Err(KeyError::Name(name.to_owned())),
        false => Ok(()),
    }
}

fn read(path: &Path) -> io::Result<(Vec<KeyRecord>, Vec<AccessRule>)> {
    let text = match disk::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
        Err(error) => return Err(error),
    };
    let file: KeyFile = serde_json::from_str(&text).map_err(|error| invalid(path, error))?;
    match file.version {
        VERSION => Ok((file.keys, file.everybody)),
        other => Err(invalid(path, format!("it has the unknown version {other}"))),
    }
}

fn invalid(path: &Path, error: impl std::fmt::Display) -> io::Error {
    let message = format!("{}: {error}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn write(path: &Path, keys: &[KeyRecord], everybody: Vec<AccessRule>) -> io::Result<()> {
    let file = KeyFile {
        version: VERSION,
        keys: keys.to_vec(),
        everybody,
    };
    let text = serde_json::to_vec_pretty(&file)?;
    disk::write_private(path, &text)
}

#[cfg(test)]
mod tests {
    use highwater_access::ScramHash;

    use super::*;

    fn spec(name: &str, sas: bool) -> KeySpec {
        KeySpec {
            name: name.to_owned(),
            rights: vec!["send".to_owned()],
            sas,
            ..KeySpec::default()
        }
    }

    // proves G4
    #[tokio::test]
    async fn a_certificate_acts_for_one_key() {
        let folder = tempfile::tempdir().unwrap();
        let stored = StoredKeys::open(folder.path(), Arc::default()).unwrap();
        let with_certificate = |name: &str| KeySpec {
            certificates: vec!["app.example".to_owned()],
            ..spec(name, false)
        };
        stored.add(with_certificate("app"), 0).await.unwrap();
        let taken = stored.add(with_certificate("other"), 0).await;
        assert!(matches!(taken, Err(KeyError::Certificate(_))));
        let read_again = Arc::new(Keys::default());
        StoredKeys::open(folder.path(), read_again.clone()).unwrap();
        assert_eq!(
            read_again.get("app", 0).unwrap().certificates,
            ["app.example"]
        );
    }

    // proves G4
    #[tokio::test]
    async fn after_a_rotation_clients_of_scram_log_in_with_either_secret() {
        let folder = tempfile::tempdir().unwrap();
        let keys = Arc::new(Keys::default());
        let stored = StoredKeys::open(folder.path(), keys.clone()).unwrap();
        for (name, sas) in [("app", false), ("signer", true)] {
            let first = stored.add(spec(name, sas), 0).await.unwrap();
            let second = stored.rotate(name, true).await.unwrap();
            let read_again = Arc::new(Keys::default());
            StoredKeys::open(folder.path(), read_again.clone()).unwrap();
            for keys in [&keys, &read_again] {
                let verifiers = keys.get(name, 0).unwrap().verifiers(ScramHash::Sha512);
                let [newest, previous] = &verifiers[..] else {
                    panic!("two secrets have two verifiers");
                };
                assert_eq!(newest.salt, previous.salt);
                assert!(newest.matches(ScramHash::Sha512, second.as_bytes()));
                assert!(previous.matches(ScramHash::Sha512, first.as_bytes()));
            }
        }
    }
}
