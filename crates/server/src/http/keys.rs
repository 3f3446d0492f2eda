//! Keys over HTTP: listed, added, rotated, revoked.

use std::sync::Arc;

use highwater_access::{Key, Principal, Quota, Right, Rights};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::App;
use super::dispatch::ApiRequest;
use super::error::{Code, Error};
use super::json_answer::JsonAnswer;
use super::reply::{self, Reply};
use crate::stored_keys::{KeyError, KeyRecord, KeySpec, StoredKeys};
use crate::text::{percent_decode, time_text};

fn stored_keys(app: &App) -> Result<&Arc<StoredKeys>, Error> {
    let none = || Error::not_found("this node stores no keys", "");
    app.backend()?.stored_keys.as_ref().ok_or_else(none)
}

/// All keys, those of the settings included, without secrets.
pub(super) async fn list(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let stored = stored_keys(request.app)?;
    let records = stored.list().await;
    let keys = stored.keys().list();
    let row = |key: &Arc<Key>| {
        let record = records.iter().find(|record| record.spec.name == key.name);
        match record {
            Some(record) => key_json(record),
            None => {
                let rights: Vec<&str> = key.rights.iter().map(Right::name).collect();
                json!({"name": key.name, "rights": rights, "in_settings": true})
            }
        }
    };
    let mut answer = JsonAnswer::new(&request.app.budget)?;
    answer.rows("keys", keys.iter().map(row))?;
    let everybody = stored.keys().everybody().list();
    answer.rows("everybody", everybody.iter().map(|rule| json!(rule)))?;
    answer.finish()
}

fn key_json(record: &KeyRecord) -> Value {
    let mut key_json = json!(record.spec);
    key_json["in_settings"] = false.into();
    key_json["created"] = time_text(highwater_log::EnqueueTime(record.created_ms)).into();
    key_json["previous_secret"] = record.has_previous_secret().into();
    if let Some(expires) = record.spec.expires_ms {
        key_json["expires"] = time_text(highwater_log::EnqueueTime(expires)).into();
    }
    key_json
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    name: String,
    rights: Vec<String>,
    hubs: Option<Vec<String>>,
    groups: Option<Vec<String>>,
    transactional_ids: Option<Vec<String>>,
    deployments: Option<Vec<String>>,
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    sas: bool,
    /// `90d`
    expires_in: Option<String>,
    #[serde(default)]
    quota: Quota,
}

const EXAMPLE: &str =
    "{\"name\":\"app\",\"rights\":[\"send\"],\"hubs\":[\"telemetry\"],\"expires_in\":\"90d\"}";

pub(super) async fn add(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let new: NewKey = request.read_json(EXAMPLE).await?;
    request.set_audited(&new.name);
    check_rights(&request.caller, &new.rights)?;
    let now_ms = request.app.clock.unix_millis();
    let lifetime = new.expires_in.as_deref().map(super::queues::send::duration);
    let spec = KeySpec {
        name: new.name,
        rights: new.rights,
        hubs: new.hubs,
        groups: new.groups,
        transactional_ids: new.transactional_ids,
        deployments: new.deployments,
        certificates: new.certificates,
        sas: new.sas,
        expires_ms: lifetime
            .transpose()?
            .map(|lifetime| now_ms.saturating_add(lifetime)),
        quota: new.quota,
        grants: Vec::new(),
        rules: Vec::new(),
    };
    let name = spec.name.clone();
    let secret = stored_keys(request.app)?.add(spec, now_ms).await?;
    let body = json!({"name": name, "secret": secret});
    Ok(reply::json(StatusCode::CREATED, &body))
}

/// A key cannot grant a right that it lacks.
fn check_rights(caller: &Principal, rights: &[String]) -> Result<(), Error> {
    if rights.is_empty() {
        let hint = "rights are send, listen, manage and deploy";
        return Err(Error::bad("a key needs at least one right", hint));
    }
    let rights = rights.iter().map(|word| {
        let hint = "use send, listen, manage or deploy";
        let unknown = || Error::bad(format!("`{word}` is no right"), hint);
        Right::parse(word).ok_or_else(unknown)
    });
    check_rights_of(caller, rights.collect::<Result<Rights, Error>>()?)
}

fn check_rights_of(caller: &Principal, rights: Rights) -> Result<(), Error> {
    let Principal::Key(key) = caller else {
        return Ok(());
    };
    match rights.iter().find(|right| !key.rights.has(*right)) {
        Some(right) => {
            let message = format!("the key has no right to {right}, and cannot give it");
            let hint = "use a key that has it";
            Err(Error::new(Code::Forbidden, message, hint))
        }
        None => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Rotation {
    keep_previous: bool,
}

impl Default for Rotation {
    fn default() -> Rotation {
        Rotation {
            keep_previous: true,
        }
    }
}

pub(super) async fn rotate(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let name = percent_decode(name);
    let example = "{\"keep_previous\":false}, or no body";
    let rotation: Rotation = request.read_optional_json(example).await?;
    let stored = stored_keys(request.app)?;
    // The answer has the new secret, so it is worth all rights of the key.
    let records = stored.list().await;
    if let Some(record) = records.iter().find(|record| record.spec.name == *name) {
        check_rights_of(&request.caller, record.spec.all_rights())?;
    }
    let secret = stored.rotate(&name, rotation.keep_previous).await?;
    let body = json!({"name": name, "secret": secret});
    Ok(reply::ok(&body))
}

pub(super) async fn revoke(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [name] = request.variables();
    let name = percent_decode(name);
    stored_keys(request.app)?.revoke(&name).await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        let (code, hint) = match &error {
            KeyError::Unknown(_) => (Code::NotFound, "GET /api/keys lists them"),
            KeyError::Exists(_) => (Code::Exists, "rotate it, or choose another name"),
            KeyError::InSettings(_) => {
                (Code::Conflict, "change the settings, and restart the node")
            }
            KeyError::Name(_) => (
                Code::BadRequest,
                "use letters, digits, dots, dashes and underscores",
            ),
            KeyError::Certificate(_) => (Code::Exists, "a certificate acts for one key"),
            KeyError::Last(_) => (Code::Conflict, "add another key first"),
            KeyError::First => (Code::Conflict, "add a key with rights first"),
            KeyError::TooMany | KeyError::TooManyGrants(_) => {
                (Code::Conflict, "revoke those that are not needed")
            }
            KeyError::Signs(_) => (Code::Conflict, "rotate it"),
            KeyError::NoCredential(_) => (Code::NotFound, "GET /api/keys lists the keys"),
            KeyError::ManagesNode(_) => (Code::Conflict, "name a key without that right"),
            KeyError::Forbidden(..) => (Code::Forbidden, "use a key that has it"),
            KeyError::Storage(_) => (Code::Stopped, "look at the node and its disk"),
        };
        Error::new(code, error.to_string(), hint)
    }
}
