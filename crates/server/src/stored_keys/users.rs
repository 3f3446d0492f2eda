//! Changes of keys that Kafka's tools ask for: ACLs, SCRAM credentials and quotas of a user, which is a key.
//!
//! A user is there from its first ACL, credential or quota on, as in Kafka, and goes with the last of them. A key of
//! the settings is changed there, and the first key of a node cannot be made here: without rights it would lock
//! everybody out. Everybody ([`EVERYBODY`]) has rules, and nothing else.

use highwater_access::{AccessEffect, AccessRule, EVERYBODY, Grant, Key, Right, Rights, Usage};
use highwater_kafka::UserChange;

use super::{GRANTS_MAX, KEYS_MAX, KeyError, KeyRecord, KeySpec, StoredKeys, check_name, write};

/// Changes of one user, all or none.
pub(crate) struct UserUpdate {
    pub(crate) user: String,
    pub(crate) changes: Vec<UserChange>,
    /// The rights of the client, which can neither grant nor take over others.
    pub(crate) client_rights: Rights,
    pub(crate) now_ms: i64,
    /// Whether everything is checked and nothing is changed.
    pub(crate) validate_only: bool,
}

impl StoredKeys {
    pub(crate) async fn update_user(&self, update: UserUpdate) -> Result<(), KeyError> {
        let name = &update.user;
        if name == EVERYBODY {
            return self.update_everybody(update).await;
        }
        check_name(name)?;
        let records = self.records.lock().await;
        if self.keys.is_empty() {
            return Err(KeyError::First);
        }
        let mut changed = records.clone();
        let at = match self.position(&records, name) {
            Ok(at) => at,
            Err(KeyError::Unknown(_)) if records.len() >= KEYS_MAX => {
                return Err(KeyError::TooMany);
            }
            Err(KeyError::Unknown(_)) => {
                let spec = KeySpec {
                    name: name.clone(),
                    ..KeySpec::default()
                };
                changed.push(KeyRecord::new(spec, update.now_ms)?);
                changed.len() - 1
            }
            Err(error) => return Err(error),
        };
        for change in &update.changes {
            apply(&mut changed[at], change, update.client_rights)?;
        }
        if changed[at].is_empty() {
            changed.remove(at);
        }
        match update.validate_only {
            true => Ok(()),
            false => self.store(records, changed, name),
        }
    }

    /// Changes the rules for everybody.
    async fn update_everybody(&self, update: UserUpdate) -> Result<(), KeyError> {
        // Held until the file is written.
        let records = self.records.lock().await;
        if self.keys.is_empty() {
            return Err(KeyError::First);
        }
        let mut rules = self.keys.everybody().list();
        for change in &update.changes {
            match change {
                UserChange::AddRule(rule) => {
                    check_rights(&update.user, rule, update.client_rights)?;
                    add_rule(&mut rules, rule);
                }
                UserChange::RemoveRule(rule) => rules.retain(|known| known != rule),
                _ => return Err(KeyError::Name(update.user)),
            }
        }
        if rules.len() > GRANTS_MAX.max(self.keys.everybody().list().len()) {
            return Err(KeyError::TooManyGrants(update.user));
        }
        if update.validate_only {
            return Ok(());
        }
        write(&self.path, &records, rules.clone())?;
        self.keys.set_everybody(rules);
        self.changes.send_replace(());
        Ok(())
    }
}

fn apply(record: &mut KeyRecord, change: &UserChange, client: Rights) -> Result<(), KeyError> {
    match change {
        UserChange::Grant(grant) => add_grant(record, grant, client),
        UserChange::Revoke(grant) => {
            record.spec.grants.retain(|known| known != grant);
            Ok(())
        }
        UserChange::AddRule(rule) => {
            check_rights(&record.spec.name, rule, client)?;
            let manages_node = record.key().is_ok_and(|key| Key::manages_node(&key));
            if rule.effect == AccessEffect::Deny && manages_node {
                return Err(KeyError::ManagesNode(record.spec.name.clone()));
            }
            add_rule(&mut record.spec.rules, rule);
            check_count(&record.spec)
        }
        UserChange::RemoveRule(rule) => {
            record.spec.rules.retain(|known| known != rule);
            Ok(())
        }
        UserChange::SetCredential { hash, verifier } => {
            check_credential(record, client)?;
            record.set_verifier(*hash, verifier);
            Ok(())
        }
        UserChange::RemoveCredential(hash) => {
            check_credential(record, client)?;
            match record.remove_verifiers(*hash) {
                true => Ok(()),
                false => Err(KeyError::NoCredential(record.spec.name.clone())),
            }
        }
        UserChange::SetRate { usage, per_second } => {
            let quota = &mut record.spec.quota;
            match usage {
                Usage::BytesIn => quota.bytes_in_per_second = *per_second,
                Usage::BytesOut => quota.bytes_out_per_second = *per_second,
                Usage::Requests => quota.requests_per_second = *per_second,
                Usage::Partitions => quota.partitions_per_hour = *per_second,
            }
            Ok(())
        }
    }
}

fn add_grant(record: &mut KeyRecord, grant: &Grant, client: Rights) -> Result<(), KeyError> {
    let spec = &mut record.spec;
    if !client.has(grant.right) {
        return Err(KeyError::Forbidden(spec.name.clone(), grant.right));
    }
    if spec.grants.contains(grant) {
        return Ok(());
    }
    spec.grants.push(grant.clone());
    check_count(spec)
}

/// No client gives a right that it does not have; any that manages the node may deny one.
fn check_rights(user: &str, rule: &AccessRule, client: Rights) -> Result<(), KeyError> {
    let given = rule
        .rights()
        .iter()
        .filter(|_| rule.effect == AccessEffect::Allow);
    match given.copied().find(|right| !client.has(*right)) {
        Some(right) => Err(KeyError::Forbidden(user.to_owned(), right)),
        None => Ok(()),
    }
}

fn add_rule(rules: &mut Vec<AccessRule>, rule: &AccessRule) {
    if !rules.contains(rule) {
        rules.push(rule.clone());
    }
}

fn check_count(spec: &KeySpec) -> Result<(), KeyError> {
    match spec.grants.len() + spec.rules.len() > GRANTS_MAX {
        true => Err(KeyError::TooManyGrants(spec.name.clone())),
        false => Ok(()),
    }
}

/// A client that sets the secret of a key gains all of its rights, so it must have them already. A key that signs needs
/// its secret itself, which these requests do not have.
fn check_credential(record: &KeyRecord, client: Rights) -> Result<(), KeyError> {
    let spec = &record.spec;
    if spec.sas {
        return Err(KeyError::Signs(spec.name.clone()));
    }
    let missing = |right: &Right| !client.has(*right);
    match spec.all_rights().iter().find(missing) {
        Some(right) => Err(KeyError::Forbidden(spec.name.clone(), right)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use highwater_access::{
        AccessKind, GrantKind, KeyScope, Keys, Resource, ScramHash, ScramVerifier,
    };
    use highwater_env::disk;

    use super::*;

    fn open(folder: &Path) -> (Arc<Keys>, StoredKeys) {
        let root = Key::new("root", "s3cret", Rights::ALL, KeyScope::UNLIMITED);
        let keys = Arc::new(Keys::new(vec![root]));
        (keys.clone(), StoredKeys::open(folder, keys).unwrap())
    }

    fn update(user: &str, changes: Vec<UserChange>) -> UserUpdate {
        UserUpdate {
            user: user.to_owned(),
            changes,
            client_rights: Rights::ALL,
            now_ms: 0,
            validate_only: false,
        }
    }

    fn credential(hash: ScramHash, secret: &str, salt: &[u8]) -> UserChange {
        let verifier = ScramVerifier::new(hash, secret.as_bytes(), salt, 4096);
        UserChange::SetCredential { hash, verifier }
    }

    fn send(name: &str) -> Grant {
        Grant {
            right: Right::Send,
            kind: GrantKind::Hub,
            name: name.to_owned(),
        }
    }

    // proves G1, G4
    #[tokio::test]
    async fn a_user_is_there_from_its_first_credential_to_the_end_of_its_last_grant() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        let secret = credential(ScramHash::Sha512, "pa55word", b"salt");
        stored
            .update_user(update("app", vec![secret]))
            .await
            .unwrap();
        assert!(keys.authenticate("app", b"pa55word", 0).await.is_some());
        assert!(
            !keys
                .get("app", 0)
                .unwrap()
                .may(Right::Send, Resource::Hub("h"))
        );
        let grant = UserChange::Grant(send("h"));
        stored
            .update_user(update("app", vec![grant]))
            .await
            .unwrap();
        let (keys, stored) = open(folder.path());
        let app = keys.get("app", 0).unwrap();
        assert!(app.may(Right::Send, Resource::Hub("h")));
        assert!(!app.may(Right::Send, Resource::Hub("i")));
        assert_eq!(app.verifiers(ScramHash::Sha512).len(), 1);
        assert!(app.verifiers(ScramHash::Sha256).is_empty());
        let removed = UserChange::RemoveCredential(ScramHash::Sha512);
        stored
            .update_user(update("app", vec![removed.clone()]))
            .await
            .unwrap();
        let again = stored.update_user(update("app", vec![removed])).await;
        assert!(matches!(again, Err(KeyError::NoCredential(_))));
        assert!(keys.authenticate("app", b"pa55word", 0).await.is_none());
        assert!(keys.contains("app"), "it still has a grant");
        let revoked = UserChange::Revoke(send("h"));
        stored
            .update_user(update("app", vec![revoked]))
            .await
            .unwrap();
        assert!(!keys.contains("app"));
        assert_eq!(open(folder.path()).0.list().len(), 1);
    }

    // proves G4
    #[tokio::test]
    async fn a_rotation_after_it_keeps_the_salt_that_clients_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        let first = credential(ScramHash::Sha256, "pa55word", b"a salt of the client");
        stored
            .update_user(update("app", vec![first]))
            .await
            .unwrap();
        let rotated = stored.rotate("app", true).await.unwrap();
        let (read_again, _) = open(folder.path());
        for keys in [keys, read_again] {
            let key = keys.get("app", 0).unwrap();
            let verifiers = key.verifiers(ScramHash::Sha256);
            assert_eq!(verifiers[0].salt, verifiers[1].salt);
            assert!(verifiers[0].matches(ScramHash::Sha256, rotated.as_bytes()));
            assert!(verifiers[1].matches(ScramHash::Sha256, b"pa55word"));
            assert_eq!(key.verifiers(ScramHash::Sha512).len(), 1);
            for secret in [&*rotated, "pa55word"] {
                assert!(
                    keys.authenticate("app", secret.as_bytes(), 0)
                        .await
                        .is_some()
                );
            }
        }
    }

    // proves G1
    #[tokio::test]
    async fn no_client_gives_or_takes_over_rights_that_it_has_not() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        stored
            .update_user(update("app", vec![UserChange::Grant(send("h"))]))
            .await
            .unwrap();
        let by_manager = |user: &str, change| UserUpdate {
            client_rights: [Right::Manage].into_iter().collect(),
            ..update(user, vec![change])
        };
        let secret = || credential(ScramHash::Sha256, "pa55word", b"salt");
        for (user, change) in [
            ("other", UserChange::Grant(send("h"))),
            ("app", secret()),
            ("app", UserChange::RemoveCredential(ScramHash::Sha256)),
        ] {
            let refused = stored.update_user(by_manager(user, change)).await;
            assert!(matches!(refused, Err(KeyError::Forbidden(..))), "{user}");
        }
        assert!(!keys.contains("other"));
        stored
            .update_user(by_manager("new", secret()))
            .await
            .unwrap();
    }

    fn rule(effect: AccessEffect, name: &str) -> AccessRule {
        AccessRule {
            effect,
            access: AccessKind::Send,
            kind: GrantKind::Hub,
            name: name.to_owned(),
        }
    }

    // proves G1
    #[tokio::test]
    async fn rules_hold_at_once_and_after_a_restart_until_they_are_taken() {
        use AccessEffect::{Allow, Deny};
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        let mut changes = stored.changes();
        let given =
            |user, effect, name| update(user, vec![UserChange::AddRule(rule(effect, name))]);
        for given in [
            given("app", Deny, "h"),
            given(EVERYBODY, Allow, "*"),
            given(EVERYBODY, Allow, "*"),
            given(EVERYBODY, Deny, "i"),
        ] {
            stored.update_user(given).await.unwrap();
            assert!(changes.has_changed().unwrap(), "jobs look at their rights");
            changes.mark_unchanged();
        }
        for keys in [keys, open(folder.path()).0] {
            let app = keys.get("app", 0).unwrap();
            let sends = ["h", "i", "j"].map(|hub| app.may(Right::Send, Resource::Hub(hub)));
            assert_eq!(sends, [false, false, true]);
            assert_eq!(keys.everybody().list(), [rule(Allow, "*"), rule(Deny, "i")]);
        }
        let taken =
            |user, effect, name| update(user, vec![UserChange::RemoveRule(rule(effect, name))]);
        for taken in [
            taken("app", Deny, "h"),
            taken(EVERYBODY, Allow, "*"),
            taken(EVERYBODY, Deny, "i"),
        ] {
            stored.update_user(taken).await.unwrap();
        }
        let (keys, _) = open(folder.path());
        assert!(!keys.contains("app"), "its rule was the last of it");
        assert!(keys.everybody().list().is_empty());
    }

    // proves G1
    #[tokio::test]
    async fn a_rule_gives_no_right_that_its_client_has_not_and_denies_no_manager_of_the_node() {
        use AccessEffect::{Allow, Deny};
        let folder = tempfile::tempdir().unwrap();
        let (_, stored) = open(folder.path());
        let by_manager = |user: &str, effect| UserUpdate {
            client_rights: [Right::Manage].into_iter().collect(),
            ..update(user, vec![UserChange::AddRule(rule(effect, "h"))])
        };
        for user in ["app", EVERYBODY] {
            let refused = stored.update_user(by_manager(user, Allow)).await;
            assert!(matches!(refused, Err(KeyError::Forbidden(..))), "{user}");
            stored.update_user(by_manager(user, Deny)).await.unwrap();
        }
        let spec = KeySpec {
            name: "operator".to_owned(),
            rights: vec!["manage".to_owned()],
            ..KeySpec::default()
        };
        stored.add(spec, 0).await.unwrap();
        let refused = stored.update_user(by_manager("operator", Deny)).await;
        assert!(matches!(refused, Err(KeyError::ManagesNode(_))));
        let secret = vec![credential(ScramHash::Sha256, "pa55word", b"salt")];
        let refused = stored.update_user(update(EVERYBODY, secret)).await;
        assert!(matches!(refused, Err(KeyError::Name(_))));
        let empty = tempfile::tempdir().unwrap();
        let stored = StoredKeys::open(empty.path(), Arc::default()).unwrap();
        let refused = stored.update_user(by_manager(EVERYBODY, Deny)).await;
        assert!(matches!(refused, Err(KeyError::First)));
    }

    // proves G2
    #[tokio::test]
    async fn there_are_only_so_many_rules() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        let rules = (0..GRANTS_MAX).map(|number| rule(AccessEffect::Deny, &number.to_string()));
        let rules: Vec<UserChange> = rules.map(UserChange::AddRule).collect();
        let one_more = vec![UserChange::AddRule(rule(AccessEffect::Deny, "one more"))];
        for user in ["app", EVERYBODY] {
            stored
                .update_user(update(user, rules.clone()))
                .await
                .unwrap();
            let refused = stored.update_user(update(user, one_more.clone())).await;
            assert!(matches!(refused, Err(KeyError::TooManyGrants(_))), "{user}");
        }
        assert_eq!(keys.everybody().list().len(), GRANTS_MAX);
        let refused = update("app", vec![UserChange::Grant(send("one more"))]);
        let refused = stored.update_user(refused).await;
        assert!(matches!(refused, Err(KeyError::TooManyGrants(_))));
    }

    /// A file without rules is written as before, so that the build before reads it.
    #[tokio::test]
    async fn a_file_of_before_opens_and_stays_one_without_rules() {
        let folder = tempfile::tempdir().unwrap();
        let before = r#"{"version": 1, "keys": [{"name": "app", "rights": ["send"], "sas": false,
            "quota": {}, "created_ms": 5, "salt": "AAAA", "iterations": 4096, "secrets": []}]}"#;
        disk::write_private(folder.path().join("keys.json"), before.as_bytes()).unwrap();
        let (keys, stored) = open(folder.path());
        assert!(
            keys.get("app", 0)
                .unwrap()
                .may(Right::Send, Resource::Hub("h"))
        );
        let grant = UserChange::Grant(send("h"));
        stored
            .update_user(update("app", vec![grant]))
            .await
            .unwrap();
        let text = disk::read_to_string(folder.path().join("keys.json")).unwrap();
        assert!(
            !text.contains("rules") && !text.contains("everybody"),
            "{text}"
        );
    }

    // proves G1
    #[tokio::test]
    async fn keys_of_the_settings_and_that_sign_stay_and_the_first_key_is_made_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let (_, stored) = open(folder.path());
        let secret = || vec![credential(ScramHash::Sha256, "pa55word", b"salt")];
        let refused = stored.update_user(update("root", secret())).await;
        assert!(matches!(refused, Err(KeyError::InSettings(_))));
        for name in ["", "a b", "anonymous", "*"] {
            let refused = stored.update_user(update(name, secret())).await;
            assert!(matches!(refused, Err(KeyError::Name(_))));
        }
        let spec = KeySpec {
            name: "signer".to_owned(),
            rights: vec!["send".to_owned()],
            sas: true,
            ..KeySpec::default()
        };
        stored.add(spec, 0).await.unwrap();
        let refused = stored.update_user(update("signer", secret())).await;
        assert!(matches!(refused, Err(KeyError::Signs(_))));
        let empty = tempfile::tempdir().unwrap();
        let stored = StoredKeys::open(empty.path(), Arc::default()).unwrap();
        let refused = stored.update_user(update("app", secret())).await;
        assert!(matches!(refused, Err(KeyError::First)));
    }

    // proves G5
    #[tokio::test]
    async fn a_rate_is_set_at_once_and_checked_without_a_change() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, stored) = open(folder.path());
        let rate = |per_second| UserChange::SetRate {
            usage: Usage::BytesIn,
            per_second,
        };
        let checked = UserUpdate {
            validate_only: true,
            ..update("app", vec![rate(Some(10))])
        };
        stored.update_user(checked).await.unwrap();
        assert!(!keys.contains("app"));
        stored
            .update_user(update("app", vec![rate(Some(10))]))
            .await
            .unwrap();
        let limiter = keys.get("app", 0).unwrap().limiter.clone();
        assert_eq!(limiter.quota().bytes_in_per_second, Some(10));
        stored
            .update_user(update("app", vec![rate(Some(20))]))
            .await
            .unwrap();
        assert_eq!(
            limiter.quota().bytes_in_per_second,
            Some(20),
            "of open connections"
        );
        stored
            .update_user(update("app", vec![rate(None)]))
            .await
            .unwrap();
        assert!(!keys.contains("app"));
    }
}
