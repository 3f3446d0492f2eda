//! Keys: a name, one or two secrets, rights, the names that the rights are limited to, an expiry and a quota.
//!
//! A client authenticates with name and secret, or with a signature made with the secret (see [`crate::sas`]).
//! Comparisons take constant time, and secrets are never printed.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, RwLock, RwLockReadGuard};
use std::time::Duration;

use highwater_log::HubName;
use tokio::sync::Semaphore;

use crate::login_delays::LoginDelays;
use crate::resource::WORKFLOW_JOURNAL_PREFIX;
use crate::secret::{KeySecret, SecretDigest, digest};
use crate::{
    AccessEffect, AccessRule, ClientCertificate, EverybodyRules, Grant, Limiter, NamePatterns,
    Quota, Resource, Right, Rights, ScramHash, ScramVerifier,
};

/// The names that a key's rights are limited to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyScope {
    /// Hubs and queues; workflows by the name of their journal.
    pub hubs: NamePatterns,
    pub groups: NamePatterns,
    pub transactional_ids: NamePatterns,
    /// Jobs and processors.
    pub deployments: NamePatterns,
}

/// Names and prefixes as the maker of a key lists them. `None`: the default.
#[derive(Clone, Copy, Debug, Default)]
pub struct NameLists<'a> {
    pub hubs: Option<&'a [String]>,
    pub groups: Option<&'a [String]>,
    pub transactional_ids: Option<&'a [String]>,
    pub deployments: Option<&'a [String]>,
}

impl KeyScope {
    pub const UNLIMITED: KeyScope = KeyScope {
        hubs: NamePatterns::All,
        groups: NamePatterns::All,
        transactional_ids: NamePatterns::All,
        deployments: NamePatterns::All,
    };

    /// The scope of a key that is limited to hubs alone. Groups, transactional ids and deployments share one
    /// namespace per node, so the key gets the names that begin with its own: `app`, `app-..` and `app.…`.
    pub fn of_hubs<T: Into<String>>(key: &str, hubs: impl IntoIterator<Item = T>) -> KeyScope {
        let own = NamePatterns::listed([key.to_owned(), format!("{key}-*"), format!("{key}.*")]);
        KeyScope {
            hubs: NamePatterns::listed(hubs),
            groups: own.clone(),
            transactional_ids: own.clone(),
            deployments: own,
        }
    }

    /// The scope of a key with these lists, and with defaults for those it does not have.
    pub fn listed(key: &str, lists: &NameLists<'_>) -> KeyScope {
        let default = match lists.hubs {
            None => KeyScope::UNLIMITED,
            Some(hubs) => KeyScope::of_hubs(key, hubs),
        };
        let patterns =
            |list: Option<&[String]>, default| list.map_or(default, NamePatterns::listed);
        KeyScope {
            hubs: default.hubs,
            groups: patterns(lists.groups, default.groups),
            transactional_ids: patterns(lists.transactional_ids, default.transactional_ids),
            deployments: patterns(lists.deployments, default.deployments),
        }
    }

    fn covers(&self, resource: Resource<'_>) -> bool {
        match resource {
            Resource::Node => *self == KeyScope::UNLIMITED,
            Resource::AnyHub => true,
            Resource::Hub(name) | Resource::NewHub(name) | Resource::Queue(name) => {
                self.hubs.cover(name)
            }
            Resource::Workflow(name) => self.hubs.cover_joined(WORKFLOW_JOURNAL_PREFIX, name),
            Resource::Group(name) => self.groups.cover(name),
            Resource::TransactionalId(name) => self.transactional_ids.cover(name),
            Resource::Deployment(name) => self.deployments.cover(name),
        }
    }
}

#[derive(Clone)]
pub struct Key {
    pub name: String,
    pub rights: Rights,
    pub scope: KeyScope,
    /// Beside the rights over the names of the scope.
    pub grants: Vec<Grant>,
    /// Rules for this key alone.
    pub rules: Vec<AccessRule>,
    /// Those of the node that has the key.
    everybody: EverybodyRules,
    /// Milliseconds since 1970.
    pub expires_ms: Option<i64>,
    pub limiter: Arc<Limiter>,
    /// Names of client certificates that act for the key.
    pub certificates: Vec<String>,
    /// The newest first. A second one lets clients change to the first at their own time.
    pub(crate) secrets: Vec<KeySecret>,
}

impl Key {
    pub fn new(name: &str, secret: &str, rights: Rights, scope: KeyScope) -> Key {
        Key::with_secrets(name, vec![KeySecret::plain(secret)], rights, scope)
    }

    pub fn with_secrets(
        name: &str,
        secrets: Vec<KeySecret>,
        rights: Rights,
        scope: KeyScope,
    ) -> Key {
        Key {
            name: name.to_owned(),
            rights,
            scope,
            grants: Vec::new(),
            rules: Vec::new(),
            everybody: EverybodyRules::default(),
            expires_ms: None,
            limiter: Arc::default(),
            certificates: Vec::new(),
            secrets,
        }
    }

    pub fn expires(mut self, expires_ms: Option<i64>) -> Key {
        self.expires_ms = expires_ms;
        self
    }

    pub fn limited(mut self, quota: Quota) -> Key {
        self.limiter = Arc::new(Limiter::new(quota));
        self
    }

    pub fn with_grants(mut self, grants: Vec<Grant>) -> Key {
        self.grants = grants;
        self
    }

    pub fn with_rules(mut self, rules: Vec<AccessRule>) -> Key {
        self.rules = rules;
        self
    }

    pub fn with_certificates(mut self, names: Vec<String>) -> Key {
        self.certificates = names;
        self
    }

    fn is_valid(&self, now_ms: i64) -> bool {
        self.expires_ms.is_none_or(|expires_ms| now_ms < expires_ms)
    }

    /// Whether a secret with this digest is one of its own; `None` if only a slow check can tell.
    fn matches_digest(&self, given: &SecretDigest) -> Option<bool> {
        let mut checks = self.secrets.iter().map(|own| own.matches_digest(given));
        let is_known = checks.clone().all(|check| check.is_some());
        let matches = checks.any(|check| check == Some(true));
        (is_known || matches).then_some(matches)
    }

    /// Its rights, without their scope.
    pub fn all_rights(&self) -> Rights {
        let granted = self.grants.iter().map(|grant| grant.right);
        self.rights.iter().chain(granted).collect()
    }

    /// The verifiers of its secrets, the newest first. All of them have the salt of the first: a client learns one
    /// salt, and the server cannot know which secret the client has.
    pub fn verifiers(&self, hash: ScramHash) -> Vec<ScramVerifier> {
        let verifiers = self.secrets.iter();
        verifiers
            .filter_map(|secret| secret.verifier(hash, &self.name).cloned())
            .collect()
    }

    /// Whether the key has the right over the resource. Hubs of the node itself need `manage` for everything: they hold
    /// the offsets of all groups and the inputs of all workflows.
    pub fn may(&self, right: Right, on: Resource<'_>) -> bool {
        let right = match on {
            Resource::Hub(name) | Resource::NewHub(name) if HubName::is_internal_name(name) => {
                Right::Manage
            }
            _ => right,
        };
        match self.effect(|rule| rule.effect_on(right, on)) {
            Some(AccessEffect::Deny) => false,
            Some(AccessEffect::Allow) => true,
            None => {
                let is_granted = |grant: &Grant| grant.allows(right, on);
                (self.rights.has(right) && self.scope.covers(on))
                    || self.grants.iter().any(is_granted)
            }
        }
    }

    /// Whether the key may know that the hub exists, which comes with every right over it.
    pub fn may_see(&self, hub: &str) -> bool {
        match self.effect(|rule| rule.effect_on_seeing(hub)) {
            Some(AccessEffect::Deny) => false,
            Some(AccessEffect::Allow) => true,
            None => {
                let mut rights = Right::VISIBLE.iter();
                rights.any(|right| self.may(*right, Resource::Hub(hub)))
            }
        }
    }

    /// Whether the key may manage the node. It could take back any rule, so rules that deny do not hold for it.
    pub fn manages_node(&self) -> bool {
        self.rights.has(Right::Manage) && self.scope == KeyScope::UNLIMITED
    }

    /// The effect of all rules together: a denial precedes.
    fn effect(&self, of: impl Fn(&AccessRule) -> Option<AccessEffect>) -> Option<AccessEffect> {
        let holds = |effect: &AccessEffect| *effect == AccessEffect::Allow || !self.manages_node();
        self.everybody.with(|everybody| {
            let rules = self.rules.iter().chain(everybody);
            rules.filter_map(of).filter(holds).max()
        })
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Key")
            .field("name", &self.name)
            .field("rights", &self.rights)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// The keys of a node, which may change while it runs. Listeners look a key up for every request, so that a key that is
/// revoked or expires is refused at once.
#[derive(Debug)]
pub struct Keys {
    keys: RwLock<Vec<Arc<Key>>>,
    everybody: EverybodyRules,
    no_rules: EverybodyRules,
    /// Limits the checks that take a thread.
    slow_checks: Arc<Semaphore>,
    /// One table for all listeners: a client that guesses on two of them waits as if it were one.
    login_delays: LoginDelays,
}

/// Each takes a thread, and a millisecond of it.
const SLOW_CHECKS_MAX: usize = 2;

impl Default for Keys {
    fn default() -> Keys {
        Keys::new(Vec::new())
    }
}

impl Keys {
    pub fn new(keys: Vec<Key>) -> Keys {
        let everybody = EverybodyRules::default();
        let keys = keys.into_iter().map(|key| {
            let everybody = everybody.clone();
            Arc::new(Key { everybody, ..key })
        });
        Keys {
            keys: RwLock::new(keys.collect()),
            everybody: everybody.clone(),
            no_rules: EverybodyRules::default(),
            slow_checks: Arc::new(Semaphore::new(SLOW_CHECKS_MAX)),
            login_delays: LoginDelays::default(),
        }
    }

    /// Counts a failed login, and returns how long its answer must wait. `now` is of a clock that never goes back.
    pub fn login_failed(&self, from: IpAddr, now: Duration) -> Duration {
        self.login_delays.failed(from, now)
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Arc<Key>>> {
        self.keys.read().expect("no thread panics with the lock")
    }

    fn change<T>(&self, change: impl FnOnce(&mut Vec<Arc<Key>>) -> T) -> T {
        change(&mut self.keys.write().expect("no thread panics with the lock"))
    }

    /// Without keys every client may do everything, and the node listens on this machine only.
    pub fn is_empty(&self) -> bool {
        self.read().is_empty()
    }

    /// The valid key with this name and secret. An unknown name takes as long as one whose secret was seen before.
    ///
    /// A secret that was not seen before is checked beside the runtime, a few at a time: wrong secrets must not slow
    /// down the requests of others.
    pub async fn authenticate(&self, name: &str, secret: &[u8], now_ms: i64) -> Option<Arc<Key>> {
        let given = digest(secret);
        let key = self.get(name, now_ms)?;
        if let Some(matches) = key.matches_digest(&given) {
            return matches.then_some(key);
        }
        let permit = self.slow_checks.clone().acquire_owned().await.ok()?;
        let secret = secret.to_vec();
        let check = tokio::task::spawn_blocking(move || {
            // Held to the end of the check, also if the client hangs up.
            let _permit = permit;
            let matches = |own: &KeySecret| own.matches(&secret, &given);
            key.secrets.iter().any(matches).then_some(key)
        });
        check.await.ok().flatten()
    }

    /// The key of this name, unless it has expired.
    pub fn get(&self, name: &str, now_ms: i64) -> Option<Arc<Key>> {
        let keys = self.read();
        let key = keys.iter().find(|key| key.name == name)?;
        key.is_valid(now_ms).then(|| key.clone())
    }

    /// The valid key that lists the first of the certificate's names that any key lists.
    pub fn of_certificate(&self, certificate: &ClientCertificate, now_ms: i64) -> Option<Arc<Key>> {
        let keys = self.read();
        let lists = |name: &String| keys.iter().find(|key| key.certificates.contains(name));
        let key = certificate.names.iter().find_map(lists)?;
        let is_valid = key.is_valid(now_ms) && now_ms < certificate.expires_ms;
        is_valid.then(|| key.clone())
    }

    pub fn contains(&self, name: &str) -> bool {
        self.read().iter().any(|key| key.name == name)
    }

    pub fn list(&self) -> Vec<Arc<Key>> {
        self.read().clone()
    }

    /// The rules for everybody: for each key, whatever it has, and for clients without one that may do everything.
    pub fn everybody(&self) -> &EverybodyRules {
        &self.everybody
    }

    pub fn set_everybody(&self, rules: Vec<AccessRule>) {
        self.everybody.set(rules);
    }

    /// The rules for a client without a key that may do everything: none on a node without keys, where nobody could
    /// have made one or could take one back.
    pub fn anonymous(&self) -> &EverybodyRules {
        match !self.everybody.is_empty() && self.is_empty() {
            true => &self.no_rules,
            false => &self.everybody,
        }
    }

    /// False if there is a key of this name.
    pub fn add(&self, mut key: Key) -> bool {
        key.everybody = self.everybody.clone();
        self.change(|keys| {
            let is_new = keys.iter().all(|known| known.name != key.name);
            if is_new {
                keys.push(Arc::new(key));
            }
            is_new
        })
    }

    /// Replaces the key of the same name, whose usage still counts. Its new quota holds for open connections, too.
    pub fn replace(&self, mut key: Key) {
        key.everybody = self.everybody.clone();
        self.change(|keys| {
            let known = keys.iter_mut().find(|known| known.name == key.name);
            match known {
                Some(known) => {
                    let quota = key.limiter.quota();
                    key.limiter = known.limiter.clone();
                    key.limiter.set_quota(quota);
                    *known = Arc::new(key);
                }
                None => keys.push(Arc::new(key)),
            }
        });
    }

    pub fn remove(&self, name: &str) {
        self.change(|keys| keys.retain(|known| known.name != name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessKind;

    fn key() -> Key {
        let rights = [Right::Send, Right::Manage].into_iter().collect();
        Key::new(
            "app",
            "s3cret",
            rights,
            KeyScope::of_hubs("app", ["a", "b-*", "__workflow.w"]),
        )
    }

    #[test]
    fn a_secret_is_never_printed() {
        let shown = format!("{:?}", Keys::new(vec![key()]));
        assert!(
            shown.contains("app") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    // proves G1
    #[test]
    fn a_key_is_limited_to_its_rights_and_names() {
        let key = key();
        let may = [
            (Right::Send, Resource::Hub("a")),
            (Right::Send, Resource::Queue("a")),
            (Right::Send, Resource::Hub("b-1")),
            (Right::Send, Resource::AnyHub),
            (Right::Send, Resource::Workflow("w")),
            (Right::Manage, Resource::Group("app")),
            (Right::Manage, Resource::Group("app-readers")),
            (Right::Send, Resource::TransactionalId("app.writer")),
        ];
        let may_not = [
            (Right::Listen, Resource::Hub("a")),
            (Right::Send, Resource::Hub("c")),
            (Right::Manage, Resource::Node),
            (Right::Listen, Resource::AnyHub),
            (Right::Send, Resource::Workflow("v")),
            (Right::Manage, Resource::Group("apple")),
            (Right::Manage, Resource::Group("other")),
            (Right::Send, Resource::TransactionalId("other-writer")),
            (Right::Deploy, Resource::Deployment("app")),
        ];
        for (right, on) in may {
            assert!(key.may(right, on), "{right} {on}");
        }
        for (right, on) in may_not {
            assert!(!key.may(right, on), "{right} {on}");
        }
    }

    // proves G1
    #[test]
    fn a_grant_adds_to_a_key_and_to_no_other_name() {
        let grant = |right, name: &str| Grant {
            right,
            kind: crate::GrantKind::Hub,
            name: name.to_owned(),
        };
        let grants = vec![grant(Right::Listen, "c"), grant(Right::Send, "*")];
        let key = Key::new("app", "s3cret", Rights::default(), KeyScope::UNLIMITED);
        let key = key.with_grants(grants);
        assert!(key.may(Right::Listen, Resource::Hub("c")));
        assert!(key.may(Right::Send, Resource::Hub("d")));
        assert!(!key.may(Right::Listen, Resource::Hub("d")));
        assert!(
            !key.may(Right::Send, Resource::Hub("__groups")),
            "a hub of the node"
        );
        assert!(!key.may(Right::Send, Resource::Node));
        let rights: Vec<Right> = key.all_rights().iter().collect();
        assert_eq!(rights, [Right::Send, Right::Listen]);
    }

    fn rule(effect: AccessEffect, access: AccessKind, name: &str) -> AccessRule {
        AccessRule {
            effect,
            access,
            kind: crate::GrantKind::Hub,
            name: name.to_owned(),
        }
    }

    fn limited(rights: &[Right]) -> Key {
        let rights = rights.iter().copied().collect();
        Key::new("app", "s3cret", rights, KeyScope::of_hubs("app", ["a*"]))
    }

    // proves G1
    #[test]
    fn a_denial_precedes_rights_grants_and_rules() {
        use AccessEffect::{Allow, Deny};
        use AccessKind::{All, Listen, See};
        let both = [Right::Send, Right::Listen];
        let grant = Grant {
            right: Right::Listen,
            kind: crate::GrantKind::Hub,
            name: "b".to_owned(),
        };
        let rules = vec![
            rule(Deny, Listen, "a1"),
            rule(Allow, Listen, "a1"),
            rule(Deny, All, "b"),
            rule(Allow, See, "c"),
        ];
        let key = limited(&both).with_grants(vec![grant]).with_rules(rules);
        assert!(!key.may(Right::Listen, Resource::Hub("a1")));
        assert!(key.may(Right::Send, Resource::Hub("a1")));
        assert!(key.may(Right::Listen, Resource::Hub("a2")));
        assert!(key.may_see("a1"), "it may still send");
        assert!(!key.may(Right::Listen, Resource::Hub("b")) && !key.may_see("b"));
        assert!(key.may_see("c") && !key.may(Right::Listen, Resource::Hub("c")));
        assert!(!key.may_see("d"));
        assert!(key.may(Right::Send, Resource::AnyHub), "there are others");
        assert!(key.may(Right::Listen, Resource::Queue("a1")), "no hub");
        let none = key.with_rules(vec![rule(Deny, AccessKind::Send, "*")]);
        assert!(!none.may(Right::Send, Resource::AnyHub));
    }

    // proves G1
    #[test]
    fn rules_for_everybody_hold_for_keys_that_were_looked_up_before() {
        let root = Key::new("root", "s3cret", Rights::ALL, KeyScope::UNLIMITED);
        let keys = Keys::new(vec![root]);
        keys.add(limited(&[Right::Send]));
        let (app, root) = (keys.get("app", 0).unwrap(), keys.get("root", 0).unwrap());
        let anonymous = keys.anonymous().clone();
        keys.set_everybody(vec![
            rule(AccessEffect::Deny, AccessKind::All, "a1"),
            rule(AccessEffect::Allow, AccessKind::Listen, "*"),
        ]);
        keys.replace(limited(&[Right::Send]));
        for app in [app, keys.get("app", 0).unwrap()] {
            assert!(!app.may(Right::Send, Resource::Hub("a1")) && !app.may_see("a1"));
            assert!(app.may(Right::Send, Resource::Hub("a2")));
            assert!(app.may(Right::Listen, Resource::Hub("b")));
            assert!(!app.may(Right::Listen, Resource::Hub("__groups")));
            assert!(!app.may(Right::Listen, Resource::Group("g")));
        }
        for right in Right::VISIBLE {
            assert!(!anonymous.may(*right, Resource::Hub("a1")));
            assert!(anonymous.may(*right, Resource::Hub("a2")));
            assert!(root.may(*right, Resource::Hub("a1")), "it manages the node");
        }
        assert!(!anonymous.may_see("a1") && anonymous.may_see("b") && root.may_see("a1"));
        assert!(anonymous.may(Right::Manage, Resource::Node));
        keys.remove("root");
        keys.remove("app");
        assert!(keys.anonymous().may(Right::Send, Resource::Hub("a1")));
    }

    /// Every rule over two names, for the key and for everybody, against the order in which they count.
    // proves G1
    #[test]
    fn rules_are_decided_as_kafka_decides_them() {
        use AccessKind::{All, Listen, Manage, See, Send};
        let names = ["a1", "a*", "b"];
        let effects = [AccessEffect::Allow, AccessEffect::Deny];
        let accesses = [All, See, Send, Listen, Manage];
        let all = |effect| accesses.map(|access| names.map(|name| rule(effect, access, name)));
        let all: Vec<AccessRule> = effects
            .into_iter()
            .flat_map(|effect| all(effect).concat())
            .collect();
        let rights = |rule: &AccessRule| match rule.access {
            All => vec![Right::Send, Right::Listen, Right::Manage],
            See => Vec::new(),
            Send => vec![Right::Send],
            Listen => vec![Right::Listen],
            Manage => vec![Right::Manage],
        };
        let covers = |rule: &AccessRule, hub: &str| match rule.name.strip_suffix('*') {
            Some(prefix) => hub.starts_with(prefix),
            None => rule.name == hub,
        };
        let plain = limited(&[Right::Send]);
        for own in &all {
            for of_all in &all {
                let keys = Keys::new(vec![plain.clone().with_rules(vec![own.clone()])]);
                keys.set_everybody(vec![of_all.clone()]);
                let key = keys.get("app", 0).unwrap();
                let has = |effect, hub: &str, is_meant: &dyn Fn(&AccessRule) -> bool| {
                    let mut rules = [own, of_all].into_iter();
                    rules.any(|rule| rule.effect == effect && covers(rule, hub) && is_meant(rule))
                };
                for hub in ["a1", "a2", "b", "c"] {
                    let mut sees = has(AccessEffect::Allow, hub, &|rule| {
                        matches!(rule.access, All | See)
                    });
                    for right in Right::VISIBLE {
                        let is_meant = |rule: &AccessRule| rights(rule).contains(right);
                        let made_with = *right == Right::Send && hub.starts_with('a');
                        let expected = !has(AccessEffect::Deny, hub, &is_meant)
                            && (made_with || has(AccessEffect::Allow, hub, &is_meant));
                        let found = key.may(*right, Resource::Hub(hub));
                        assert_eq!(found, expected, "{own:?} {of_all:?} {right} {hub}");
                        sees |= expected;
                    }
                    sees &= !has(AccessEffect::Deny, hub, &|rule| {
                        matches!(rule.access, All | See)
                    });
                    assert_eq!(key.may_see(hub), sees, "{own:?} {of_all:?} {hub}");
                }
            }
        }
    }

    /// A denial over all names of all kinds takes from nobody the right over the node, which takes it back.
    // proves G1
    #[test]
    fn nobody_is_locked_out_of_the_node() {
        let manage = || [Right::Manage].into_iter().collect();
        let manager = Key::new("m", "s3cret", manage(), KeyScope::UNLIMITED);
        let keys = Keys::new(vec![manager]);
        let kinds = ["hub", "new_hub", "group", "transactional_id"];
        let kinds = kinds.map(|kind| serde_json::from_str(&format!("{kind:?}")).unwrap());
        let denials = kinds.map(|kind| AccessRule {
            kind,
            ..rule(AccessEffect::Deny, AccessKind::All, "*")
        });
        keys.set_everybody(denials.to_vec());
        let manager = keys.get("m", 0).unwrap();
        for on in [Resource::Node, Resource::Hub("a"), Resource::Group("g")] {
            assert!(manager.may(Right::Manage, on), "{on}");
        }
        assert!(keys.anonymous().may(Right::Manage, Resource::Node));
        assert!(!keys.anonymous().may(Right::Manage, Resource::Group("g")));
    }

    // proves G1
    #[test]
    fn hubs_of_the_node_need_manage() {
        let with = |rights: &[Right]| {
            Key::new(
                "k",
                "s3cret",
                rights.iter().copied().collect(),
                KeyScope::UNLIMITED,
            )
        };
        let client = with(&[Right::Send, Right::Listen, Right::Deploy]);
        let manager = with(&[Right::Manage]);
        for right in Right::ALL {
            assert!(!client.may(right, Resource::Hub("__groups")), "{right}");
        }
        assert!(manager.may(Right::Listen, Resource::Hub("__groups")));
        assert!(!manager.may(Right::Listen, Resource::Hub("a")));
    }

    #[tokio::test]
    async fn name_and_secret_must_both_be_right() {
        let keys = Keys::new(vec![key()]);
        assert!(keys.authenticate("app", b"s3cret", 0).await.is_some());
        assert!(keys.authenticate("app", b"s3cre", 0).await.is_none());
        assert!(keys.authenticate("apq", b"s3cret", 0).await.is_none());
    }

    // proves G4
    #[tokio::test]
    async fn a_key_may_have_two_secrets_expires_and_can_be_revoked() {
        let secrets = vec![KeySecret::plain("newer!"), KeySecret::plain("older!")];
        let key = Key::with_secrets("app", secrets, Rights::ALL, KeyScope::UNLIMITED);
        let keys = Keys::new(vec![key.expires(Some(100))]);
        assert!(keys.authenticate("app", b"newer!", 99).await.is_some());
        assert!(keys.authenticate("app", b"older!", 99).await.is_some());
        assert!(keys.authenticate("app", b"newer!", 100).await.is_none());
        assert!(keys.get("app", 100).is_none());
        assert!(!keys.add(self::key()), "the name is taken");
        keys.remove("app");
        assert!(keys.authenticate("app", b"newer!", 99).await.is_none());
    }
    fn stored(secret: &str) -> KeySecret {
        let verifier = |hash| Some(ScramVerifier::new(hash, secret.as_bytes(), b"salt", 2));
        KeySecret::stored(verifier(ScramHash::Sha256), verifier(ScramHash::Sha512))
    }

    /// Without the limit every guess would take a thread, and the seen secret would wait with the others.
    // proves G2, G4
    #[tokio::test]
    async fn slow_checks_are_limited_and_a_secret_that_was_seen_does_not_wait_for_them() {
        let of = |name, secrets| Key::with_secrets(name, secrets, Rights::ALL, KeyScope::UNLIMITED);
        let keys = Keys::new(vec![
            of("seen", vec![stored("newer!"), stored("older!")]),
            of("new", vec![stored("s3cret")]),
        ]);
        assert!(keys.authenticate("seen", b"older!", 0).await.is_some());
        let checks = keys.slow_checks.clone();
        let busy = checks.acquire_many_owned(SLOW_CHECKS_MAX as u32).await;
        assert!(keys.authenticate("seen", b"older!", 0).await.is_some());
        assert!(keys.authenticate("nobody", b"s3cret", 0).await.is_none());
        let mut waiting = Box::pin(keys.authenticate("new", b"s3cret", 0));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        drop(busy);
        assert!(waiting.await.is_some());
        assert!(keys.authenticate("new", b"s3cres", 0).await.is_none());
        assert_eq!(keys.slow_checks.available_permits(), SLOW_CHECKS_MAX);
    }

    // proves G4
    #[test]
    fn a_certificate_acts_for_the_key_that_lists_it() {
        let keys = Keys::new(vec![
            key()
                .with_certificates(vec!["app.example".into()])
                .expires(Some(50)),
            Key::new("other", "s3cret", Rights::ALL, KeyScope::UNLIMITED),
        ]);
        let of = |names: &[&str], now_ms| {
            let certificate = ClientCertificate {
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                expires_ms: 100,
            };
            keys.of_certificate(&certificate, now_ms)
        };
        assert_eq!(of(&["x", "app.example"], 0).unwrap().name, "app");
        assert!(of(&["app", "other", "App.example"], 0).is_none());
        assert!(of(&[], 0).is_none());
        assert!(of(&["app.example"], 50).is_none(), "the key has expired");
        keys.replace(key().with_certificates(vec!["app.example".into()]));
        assert!(of(&["app.example"], 99).is_some());
        assert!(of(&["app.example"], 100).is_none(), "it has expired");
    }

    // proves G4
    #[test]
    fn failed_logins_count_over_all_listeners() {
        let keys = Keys::default();
        let from = IpAddr::from([10, 0, 0, 1]);
        let first = keys.login_failed(from, Duration::ZERO);
        assert!(keys.login_failed(from, Duration::ZERO) > first);
    }
}
