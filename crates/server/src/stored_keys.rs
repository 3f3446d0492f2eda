//! Keys that are added, rotated and revoked while the node runs.
//!
//! They are in `keys.json` in the data folder, which a node creates for its owner alone. It has the verifiers of secrets, and
//! a secret itself only if the key signs shared access signatures. A change is on the disk before it counts.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_access::{
    Key, KeyScope, KeySecret, Keys, NameLists, Quota, Right, ScramHash, ScramVerifier,
};
use highwater_env::disk;
use serde::{Deserialize, Serialize};
use tokio::sync::{Mutex, watch};

use crate::tls::random_bytes;

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

/// A key as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRecord {
    #[serde(flatten)]
    pub spec: KeySpec,
    pub created_ms: i64,
    /// Base64. All secrets share it: a client of SCRAM learns the salt before it shows which secret it has.
    salt: String,
    iterations: u32,
    /// The newest first.
    secrets: Vec<SecretRecord>,
}

/// The part of a key that its creator chooses.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KeySpec {
    pub name: String,
    pub rights: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hubs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transactional_ids: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployments: Option<Vec<String>>,
    /// Names of client certificates that act for the key.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// Stores the secret itself, which signatures need.
    #[serde(default)]
    pub sas: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<i64>,
    #[serde(default)]
    pub quota: Quota,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRecord {
    sha256: VerifierRecord,
    sha512: VerifierRecord,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// Byte strings are base64.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifierRecord {
    stored_key: String,
    server_key: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    version: u32,
    keys: Vec<KeyRecord>,
}

const VERSION: u32 = 1;

impl StoredKeys {
    /// Reads the stored keys and adds them to `keys`, which has those of the settings.
    pub fn open(folder: &Path, keys: Arc<Keys>) -> io::Result<StoredKeys> {
        let path = folder.join("keys.json");
        let records = read(&path)?;
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
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name == "anonymous" || !name.chars().all(is_valid) {
            return Err(KeyError::Name(name));
        }
        let mut records = self.records.lock().await;
        if self.keys.contains(&name) {
            return Err(KeyError::Exists(name));
        }
        let known = self.keys.list();
        let is_taken = |name: &&String| known.iter().any(|key| key.certificates.contains(name));
        if let Some(taken) = spec.certificates.iter().find(is_taken) {
            return Err(KeyError::Certificate(taken.clone()));
        }
        let mut record = KeyRecord {
            spec,
            created_ms: now_ms,
            salt: STANDARD.encode(random_bytes::<16>()?),
            iterations: ScramVerifier::ITERATIONS,
            secrets: Vec::new(),
        };
        let secret = record.add_secret()?;
        let key = record.key().map_err(|_| KeyError::Name(name))?;
        let mut changed = records.clone();
        changed.push(record);
        write(&self.path, &changed)?;
        *records = changed;
        self.keys.add(key);
        self.changes.send_replace(());
        Ok(secret)
    }

    /// Gives a key a new secret, and returns it. The previous one stays valid if `keep_previous`; older ones do not.
    pub async fn rotate(&self, name: &str, keep_previous: bool) -> Result<String, KeyError> {
        let mut records = self.records.lock().await;
        let at = self.position(&records, name)?;
        let mut changed = records.clone();
        let record = &mut changed[at];
        record.secrets.truncate(usize::from(keep_previous));
        let secret = record.add_secret()?;
        let key = record.key().map_err(|_| KeyError::Name(name.to_owned()))?;
        write(&self.path, &changed)?;
        *records = changed;
        self.keys.replace(key);
        self.changes.send_replace(());
        Ok(secret)
    }

    pub async fn revoke(&self, name: &str) -> Result<(), KeyError> {
        let mut records = self.records.lock().await;
        let at = self.position(&records, name)?;
        if self.keys.list().len() == 1 {
            return Err(KeyError::Last(name.to_owned()));
        }
        let mut changed = records.clone();
        changed.remove(at);
        write(&self.path, &changed)?;
        *records = changed;
        self.keys.remove(name);
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

impl KeyRecord {
    /// Whether the key has a second valid secret.
    pub(crate) fn has_previous_secret(&self) -> bool {
        self.secrets.len() > 1
    }

    /// Makes a new secret the newest one, and returns it. The record has the secret itself only if the key signs.
    fn add_secret(&mut self) -> io::Result<String> {
        let secret = STANDARD.encode(random_bytes::<32>()?);
        let salt = decode(&self.salt).map_err(io::Error::other)?;
        let verifier = |hash| {
            let verifier = ScramVerifier::new(hash, secret.as_bytes(), &salt, self.iterations);
            VerifierRecord {
                stored_key: STANDARD.encode(verifier.stored_key),
                server_key: STANDARD.encode(verifier.server_key),
            }
        };
        let record = SecretRecord {
            sha256: verifier(ScramHash::Sha256),
            sha512: verifier(ScramHash::Sha512),
            secret: self.spec.sas.then(|| secret.clone()),
        };
        self.secrets.insert(0, record);
        Ok(secret)
    }

    fn secret(&self, record: &SecretRecord) -> Result<KeySecret, String> {
        let verifier = |stored: &VerifierRecord| -> Result<ScramVerifier, String> {
            Ok(ScramVerifier {
                salt: decode(&self.salt)?,
                iterations: self.iterations,
                stored_key: decode(&stored.stored_key)?,
                server_key: decode(&stored.server_key)?,
            })
        };
        match &record.secret {
            Some(secret) => Ok(KeySecret::plain(secret)),
            None => {
                let (sha256, sha512) = (verifier(&record.sha256)?, verifier(&record.sha512)?);
                Ok(KeySecret::stored(sha256, sha512))
            }
        }
    }

    fn key(&self) -> Result<Key, String> {
        let spec = &self.spec;
        let rights = spec.rights.iter().map(|word| {
            let unknown = || format!("`{word}` is no right");
            Right::parse(word).ok_or_else(unknown)
        });
        let secrets = self.secrets.iter().map(|record| self.secret(record));
        Ok(Key::with_secrets(
            &spec.name,
            secrets.collect::<Result<_, _>>()?,
            rights.collect::<Result<_, _>>()?,
            spec.scope(),
        )
        .with_certificates(spec.certificates.clone())
        .expires(spec.expires_ms)
        .limited(spec.quota))
    }
}

impl KeySpec {
    fn scope(&self) -> KeyScope {
        let lists = NameLists {
            hubs: self.hubs.as_deref(),
            groups: self.groups.as_deref(),
            transactional_ids: self.transactional_ids.as_deref(),
            deployments: self.deployments.as_deref(),
        };
        KeyScope::listed(&self.name, &lists)
    }
}

fn decode(base64: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(base64).map_err(|error| error.to_string())
}

fn read(path: &Path) -> io::Result<Vec<KeyRecord>> {
    let text = match disk::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let file: KeyFile = serde_json::from_str(&text).map_err(|error| invalid(path, error))?;
    match file.version {
        VERSION => Ok(file.keys),
        other => Err(invalid(path, format!("it has the unknown version {other}"))),
    }
}

fn invalid(path: &Path, error: impl std::fmt::Display) -> io::Error {
    let message = format!("{}: {error}", path.display());
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn write(path: &Path, keys: &[KeyRecord]) -> io::Result<()> {
    let file = KeyFile {
        version: VERSION,
        keys: keys.to_vec(),
    };
    let text = serde_json::to_vec_pretty(&file)?;
    disk::write_private(path, &text)
}

#[cfg(test)]
mod tests {
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
