//! Bindings of Kafka's ACLs, and what the rights, grants and rules of a key are in them.

use std::iter::once;
use std::sync::Arc;

use highwater_access::{
    AccessEffect, AccessKind, AccessRule, EVERYBODY, Grant, GrantKind, Key, KeyScope, NamePatterns,
    Right,
};

use crate::access::UserChange;

pub(super) const ANY: i8 = 1;

pub(super) const TOPIC: i8 = 2;
pub(super) const GROUP: i8 = 3;
pub(super) const CLUSTER: i8 = 4;
pub(super) const TRANSACTIONAL_ID: i8 = 5;
const CLUSTER_NAME: &str = "kafka-cluster";

/// Kinds of patterns. A filter can have `MATCH`: all patterns that cover the name.
pub(super) const MATCH: i8 = 2;
pub(super) const LITERAL: i8 = 3;
pub(super) const PREFIXED: i8 = 4;
pub(super) const WILDCARD: &str = "*";

pub(super) const ALL: i8 = 2;
pub(super) const READ: i8 = 3;
pub(super) const WRITE: i8 = 4;
pub(super) const CREATE: i8 = 5;
pub(super) const DELETE: i8 = 6;
pub(super) const ALTER: i8 = 7;
pub(super) const DESCRIBE: i8 = 8;
pub(super) const DESCRIBE_CONFIGS: i8 = 10;
pub(super) const ALTER_CONFIGS: i8 = 11;

pub(super) const DENY: i8 = 2;
pub(super) const ALLOW: i8 = 3;

/// The principal of a key.
pub(super) const USER: &str = "User:";

/// What a right over a kind of resource allows. Describing comes with each, as in Kafka.
pub(super) fn operations(right: Right, resource: i8) -> &'static [i8] {
    match (right, resource) {
        (Right::Listen, TOPIC | GROUP) => &[READ],
        (Right::Send, TOPIC | TRANSACTIONAL_ID) => &[WRITE],
        (Right::Manage, TOPIC) => &[CREATE, DELETE, ALTER, DESCRIBE_CONFIGS, ALTER_CONFIGS],
        (Right::Manage, GROUP) => &[DELETE],
        (Right::Manage, CLUSTER) => &[CREATE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS],
        _ => &[],
    }
}

/// Kafka's pattern of a name or prefix of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern {
    pub(super) kind: i8,
    pub(super) name: String,
}

impl Pattern {
    pub(super) fn literal(name: &str) -> Pattern {
        Pattern {
            kind: LITERAL,
            name: name.to_owned(),
        }
    }

    /// Of a name or prefix as keys have them.
    fn of(name: &str) -> Pattern {
        match name.strip_suffix('*') {
            Some("") => Pattern::literal(WILDCARD),
            Some(prefix) => Pattern {
                kind: PREFIXED,
                name: prefix.to_owned(),
            },
            None => Pattern::literal(name),
        }
    }

    /// The name or prefix as keys have it.
    pub(super) fn key_name(&self) -> String {
        match self.kind {
            PREFIXED => format!("{}*", self.name),
            _ => self.name.clone(),
        }
    }
}

fn patterns(names: &NamePatterns) -> Vec<Pattern> {
    match names {
        NamePatterns::All => vec![Pattern::literal(WILDCARD)],
        NamePatterns::Listed(names) => names.iter().map(|name| Pattern::of(name)).collect(),
    }
}

/// What bindings are stored as.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredBinding {
    Grant(Grant),
    Rule(AccessRule),
}

impl StoredBinding {
    /// Its operations, which were given at once and are taken at once.
    pub(super) fn operations(&self) -> &'static [i8] {
        let (right, kind) = match self {
            StoredBinding::Grant(grant) => (grant.right, grant.kind),
            StoredBinding::Rule(rule) => match rule.access {
                AccessKind::All => return &[ALL],
                AccessKind::See => return &[DESCRIBE],
                AccessKind::Send => (Right::Send, rule.kind),
                AccessKind::Listen => (Right::Listen, rule.kind),
                AccessKind::Manage => (Right::Manage, rule.kind),
            },
        };
        match kind {
            GrantKind::NewHub => &[CREATE],
            kind => operations(right, resource_type(kind)),
        }
    }

    fn permission(&self) -> i8 {
        match self {
            StoredBinding::Rule(rule) if rule.effect == AccessEffect::Deny => DENY,
            _ => ALLOW,
        }
    }

    fn kind(&self) -> GrantKind {
        match self {
            StoredBinding::Grant(grant) => grant.kind,
            StoredBinding::Rule(rule) => rule.kind,
        }
    }

    fn name(&self) -> &str {
        match self {
            StoredBinding::Grant(grant) => &grant.name,
            StoredBinding::Rule(rule) => &rule.name,
        }
    }

    /// Whether it has the creation of hubs, which is a part of `manage`.
    pub(super) fn is_creation(&self) -> bool {
        self.kind() == GrantKind::NewHub
    }

    pub(super) fn addition(self) -> UserChange {
        match self {
            StoredBinding::Grant(grant) => UserChange::Grant(grant),
            StoredBinding::Rule(rule) => UserChange::AddRule(rule),
        }
    }

    pub(super) fn removal(self) -> UserChange {
        match self {
            StoredBinding::Grant(grant) => UserChange::Revoke(grant),
            StoredBinding::Rule(rule) => UserChange::RemoveRule(rule),
        }
    }
}

/// Operations on a resource that belong together: they were given at once, and are taken at once.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) resource: i8,
    pub(super) pattern: Pattern,
    pub(super) operations: &'static [i8],
    pub(super) permission: i8,
    /// `None` for rights that were given with the key.
    pub(super) stored: Option<StoredBinding>,
    /// Whether it is what Kafka calls a super user, who may do everything without a binding.
    is_super_user: bool,
}

impl Entry {
    fn of(stored: StoredBinding) -> Entry {
        Entry {
            resource: resource_type(stored.kind()),
            pattern: Pattern::of(stored.name()),
            operations: stored.operations(),
            permission: stored.permission(),
            stored: Some(stored),
            is_super_user: false,
        }
    }
}

/// Whose bindings there are.
pub(super) struct Holders {
    pub(super) keys: Vec<Arc<Key>>,
    pub(super) everybody: Vec<AccessRule>,
}

impl Holders {
    /// The bindings of each key by its name, and those of everybody.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Vec<Entry>)> {
        let keys = self.keys.iter().map(|key| (&*key.name, entries(key)));
        let rules = self.everybody.iter().cloned().map(StoredBinding::Rule);
        keys.chain(once((EVERYBODY, rules.map(Entry::of).collect())))
    }

    /// What is stored for a user.
    pub(super) fn stored(&self, user: &str) -> Vec<StoredBinding> {
        let rules = |rules: &[AccessRule]| rules.iter().cloned().map(StoredBinding::Rule).collect();
        let key = self.keys.iter().find(|key| key.name == user);
        let mut stored: Vec<StoredBinding> = match key {
            Some(key) => rules(&key.rules),
            None if user == EVERYBODY => rules(&self.everybody),
            None => Vec::new(),
        };
        let grants = key.into_iter().flat_map(|key| key.grants.iter().cloned());
        stored.extend(grants.map(StoredBinding::Grant));
        stored
    }
}

/// Whether a key has all rights that Kafka has words for, without limits.
fn is_super_user(key: &Key) -> bool {
    let rights = [Right::Listen, Right::Send, Right::Manage];
    key.scope == KeyScope::UNLIMITED && rights.iter().all(|right| key.rights.has(*right))
}

/// The rights, grants and rules of a key.
fn entries(key: &Key) -> Vec<Entry> {
    let is_super_user = is_super_user(key);
    let of_rights = resources(key).into_iter().flat_map(|(resource, pattern)| {
        let rights = key.rights.iter();
        rights.map(move |right| Entry {
            resource,
            pattern: pattern.clone(),
            operations: operations(right, resource),
            permission: ALLOW,
            stored: None,
            is_super_user,
        })
    });
    let of_grants = key.grants.iter().cloned().map(StoredBinding::Grant);
    let of_rules = key.rules.iter().cloned().map(StoredBinding::Rule);
    let stored = of_grants.chain(of_rules).map(Entry::of);
    of_rights.chain(stored).collect()
}

fn resource_type(kind: GrantKind) -> i8 {
    match kind {
        GrantKind::Hub | GrantKind::NewHub => TOPIC,
        GrantKind::Group => GROUP,
        GrantKind::TransactionalId => TRANSACTIONAL_ID,
    }
}

/// The grants that bindings on a kind of resource can ask for, without their name.
pub(super) fn possible_grants(resource: i8) -> &'static [(Right, GrantKind)] {
    match resource {
        // The whole of `manage` comes before its part.
        TOPIC => &[
            (Right::Listen, GrantKind::Hub),
            (Right::Send, GrantKind::Hub),
            (Right::Manage, GrantKind::Hub),
            (Right::Manage, GrantKind::NewHub),
        ],
        GROUP => &[
            (Right::Listen, GrantKind::Group),
            (Right::Manage, GrantKind::Group),
        ],
        TRANSACTIONAL_ID => &[(Right::Send, GrantKind::TransactionalId)],
        _ => &[],
    }
}

/// The rules that bindings on a kind of resource can ask for, without their name.
pub(super) fn possible_rules(resource: i8) -> &'static [(AccessKind, GrantKind)] {
    use AccessKind::{All, Listen, Manage, See, Send};
    match resource {
        TOPIC => &[
            (All, GrantKind::Hub),
            (See, GrantKind::Hub),
            (Listen, GrantKind::Hub),
            (Send, GrantKind::Hub),
            (Manage, GrantKind::Hub),
            (Manage, GrantKind::NewHub),
        ],
        GROUP => &[
            (All, GrantKind::Group),
            (Listen, GrantKind::Group),
            (Manage, GrantKind::Group),
        ],
        TRANSACTIONAL_ID => &[
            (All, GrantKind::TransactionalId),
            (Send, GrantKind::TransactionalId),
        ],
        _ => &[],
    }
}

/// The resources that a key has rights over.
fn resources(key: &Key) -> Vec<(i8, Pattern)> {
    let kinds = [
        (TOPIC, &key.scope.hubs),
        (GROUP, &key.scope.groups),
        (TRANSACTIONAL_ID, &key.scope.transactional_ids),
    ];
    let named = kinds.into_iter().flat_map(|(kind, names)| {
        let patterns = patterns(names).into_iter();
        patterns.map(move |pattern| (kind, pattern))
    });
    // Rights over the node need a key without limits.
    let node =
        (key.scope == KeyScope::UNLIMITED).then(|| (CLUSTER, Pattern::literal(CLUSTER_NAME)));
    named.chain(node).collect()
}

/// A filter of DescribeAcls and DeleteAcls.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) resource: i8,
    pub(super) name: Option<String>,
    pub(super) pattern: i8,
    pub(super) principal: Option<String>,
    pub(super) host: Option<String>,
    pub(super) operation: i8,
    pub(super) permission: i8,
}

/// Whether a number of a filter selects this one.
fn selects(filter: i8, value: i8) -> bool {
    filter == ANY || filter == value
}

impl Filter {
    /// Whether it selects bindings of this user.
    pub(super) fn selects_user(&self, user: &str) -> bool {
        let is_own = |filter: &str| filter.strip_prefix(USER) == Some(user);
        let is_any_host = |host: &str| host == WILDCARD;
        self.principal.as_deref().is_none_or(is_own) && self.host.as_deref().is_none_or(is_any_host)
    }

    /// The operations of the entry that it selects. Rights of a super user are no bindings in Kafka, so they are shown
    /// to who asks for this user only.
    pub(super) fn selected(&self, entry: &Entry) -> Vec<i8> {
        if entry.is_super_user && self.principal.is_none() {
            return Vec::new();
        }
        let is_selected = selects(self.resource, entry.resource)
            && selects(self.permission, entry.permission)
            && self.matches_pattern(&entry.pattern);
        if !is_selected {
            return Vec::new();
        }
        let operations = entry.operations.iter().copied();
        operations
            .filter(|operation| selects(self.operation, *operation))
            .collect()
    }

    fn matches_pattern(&self, pattern: &Pattern) -> bool {
        match (self.pattern, self.name.as_deref()) {
            (ANY, None) | (MATCH, None) => true,
            (kind, None) => kind == pattern.kind,
            (ANY, Some(name)) => name == pattern.name,
            (MATCH, Some(name)) => match pattern.kind {
                PREFIXED => name.starts_with(&pattern.name),
                _ => pattern.name == WILDCARD || pattern.name == name,
            },
            (kind, Some(name)) => kind == pattern.kind && name == pattern.name,
        }
    }
}
