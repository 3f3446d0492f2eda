//! A key as it is stored: the choices of its creator, and the verifiers of its secrets.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use highwater_access::{
    AccessRule, Grant, Key, KeyScope, KeySecret, NameLists, Quota, Right, Rights, ScramHash,
    ScramVerifier,
};
use serde::{Deserialize, Serialize};

use crate::tls::random_bytes;

/// A key as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeyRecord {
    #[serde(flatten)]
    pub spec: KeySpec,
    pub created_ms: i64,
    /// Base64. All secrets share it: a client of SCRAM learns the salt before it shows which secret it has. Verifiers
    /// that came from a client of Kafka have salts of their own.
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
    /// Rights over single names, beside `rights`, which hold for all of the key's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<Grant>,
    /// Rules for this key alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<AccessRule>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<VerifierRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha512: Option<VerifierRecord>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

/// Byte strings are base64.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VerifierRecord {
    stored_key: String,
    server_key: String,
    /// `None`: that of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    salt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iterations: Option<u32>,
}

impl SecretRecord {
    fn verifier(&self, hash: ScramHash) -> Option<&VerifierRecord> {
        match hash {
            ScramHash::Sha256 => self.sha256.as_ref(),
            ScramHash::Sha512 => self.sha512.as_ref(),
        }
    }

    fn verifier_mut(&mut self, hash: ScramHash) -> &mut Option<VerifierRecord> {
        match hash {
            ScramHash::Sha256 => &mut self.sha256,
            ScramHash::Sha512 => &mut self.sha512,
        }
    }
}

impl VerifierRecord {
    fn new(verifier: &ScramVerifier) -> VerifierRecord {
        VerifierRecord {
            stored_key: STANDARD.encode(&verifier.stored_key),
            server_key: STANDARD.encode(&verifier.server_key),
            salt: Some(STANDARD.encode(&verifier.salt)),
            iterations: Some(verifier.iterations),
        }
    }
}

impl KeyRecord {
    /// A key without secrets.
    pub(super) fn new(spec: KeySpec, now_ms: i64) -> io::Result<KeyRecord> {
        Ok(KeyRecord {
            spec,
            created_ms: now_ms,
            salt: STANDARD.encode(random_bytes::<16>()?),
            iterations: ScramVerifier::ITERATIONS,
            secrets: Vec::new(),
        })
    }

    /// Whether nothing would be lost without it: it has no right, no limit and no login.
    pub(super) fn is_empty(&self) -> bool {
        let spec = &self.spec;
        self.secrets.is_empty()
            && spec.rights.is_empty()
            && spec.grants.is_empty()
            && spec.rules.is_empty()
            && spec.certificates.is_empty()
            && spec.quota == Quota::default()
    }

    /// The previous secret stays valid if `keep_previous`; older ones do not.
    pub(super) fn drop_old_secrets(&mut self, keep_previous: bool) {
        self.secrets.truncate(usize::from(keep_previous));
    }

    /// Replaces the verifiers of a hash by this one. Secrets that have no verifier left are no longer valid.
    pub(super) fn set_verifier(&mut self, hash: ScramHash, verifier: &ScramVerifier) {
        self.remove_verifiers(hash);
        let mut secret = SecretRecord {
            sha256: None,
            sha512: None,
            secret: None,
        };
        *secret.verifier_mut(hash) = Some(VerifierRecord::new(verifier));
        self.secrets.insert(0, secret);
    }

    /// False if there are none.
    pub(super) fn remove_verifiers(&mut self, hash: ScramHash) -> bool {
        let mut removed = false;
        for secret in &mut self.secrets {
            removed |= secret.verifier_mut(hash).take().is_some();
        }
        self.secrets
            .retain(|secret| secret.sha256.is_some() || secret.sha512.is_some());
        removed
    }

    /// Whether the key has a second valid secret.
    pub(crate) fn has_previous_secret(&self) -> bool {
        self.secrets.len() > 1
    }

    /// Makes a new secret the newest one, and returns it. The record has the secret itself only if the key signs.
    pub(super) fn add_secret(&mut self) -> io::Result<String> {
        let secret = STANDARD.encode(random_bytes::<32>()?);
        let verifier = |hash| -> io::Result<VerifierRecord> {
            let (salt, iterations) = self.salt_of(hash);
            let bytes = decode(&salt).map_err(io::Error::other)?;
            let made = ScramVerifier::new(hash, secret.as_bytes(), &bytes, iterations);
            let is_own = salt == self.salt && iterations == self.iterations;
            let record = VerifierRecord::new(&made);
            Ok(match is_own {
                true => VerifierRecord {
                    salt: None,
                    iterations: None,
                    ..record
                },
                false => record,
            })
        };
        let record = SecretRecord {
            sha256: Some(verifier(ScramHash::Sha256)?),
            sha512: Some(verifier(ScramHash::Sha512)?),
            secret: self.spec.sas.then(|| secret.clone()),
        };
        self.secrets.insert(0, record);
        Ok(secret)
    }

    /// The salt and the iterations that a new verifier must have, so that all of its hash have the same.
    fn salt_of(&self, hash: ScramHash) -> (String, u32) {
        let known = self.secrets.iter().find_map(|secret| secret.verifier(hash));
        let salt = known.and_then(|known| known.salt.clone());
        let iterations = known.and_then(|known| known.iterations);
        (
            salt.unwrap_or_else(|| self.salt.clone()),
            iterations.unwrap_or(self.iterations),
        )
    }

    fn secret(&self, record: &SecretRecord) -> Result<KeySecret, String> {
        let verifier = |hash| -> Result<Option<ScramVerifier>, String> {
            let Some(stored) = record.verifier(hash) else {
                return Ok(None);
            };
            Ok(Some(ScramVerifier {
                salt: decode(stored.salt.as_ref().unwrap_or(&self.salt))?,
                iterations: stored.iterations.unwrap_or(self.iterations),
                stored_key: decode(&stored.stored_key)?,
                server_key: decode(&stored.server_key)?,
            }))
        };
        match &record.secret {
            Some(secret) => Ok(KeySecret::plain(secret)),
            None => {
                let sha512 = verifier(ScramHash::Sha512)?;
                Ok(KeySecret::stored(verifier(ScramHash::Sha256)?, sha512))
            }
        }
    }

    pub(super) fn key(&self) -> Result<Key, String> {
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
        .with_grants(spec.grants.clone())
        .with_rules(spec.rules.clone())
        .with_certificates(spec.certificates.clone())
        .expires(spec.expires_ms)
        .limited(spec.quota))
    }
}

impl KeySpec {
    /// The rights of the key, without their scope. Unknown words are left out: they grant nothing.
    pub(crate) fn all_rights(&self) -> Rights {
        let rights = self.rights.iter().filter_map(|word| Right::parse(word));
        rights
            .chain(self.grants.iter().map(|grant| grant.right))
            .collect()
    }

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
