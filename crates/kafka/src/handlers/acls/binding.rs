//! Bindings of Kafka's ACLs, and what the rights and grants of a key are in them.

use highwater_access::{Grant, GrantKind, Key, KeyScope, NamePatterns, Right};

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

/// Operations on a resource that belong together: they were given at once, and are taken at once.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) resource: i8,
    pub(super) pattern: Pattern,
    pub(super) operations: &'static [i8],
    /// `None` for rights that were given with the key.
    pub(super) grant: Option<Grant>,
    /// Whether it is what Kafka calls a super user, who may do everything without a binding.
    is_super_user: bool,
}

/// Whether a key has all rights that Kafka has words for, without limits.
fn is_super_user(key: &Key) -> bool {
    let rights = [Right::Listen, Right::Send, Right::Manage];
    key.scope == KeyScope::UNLIMITED && rights.iter().all(|right| key.rights.has(*right))
}

/// The rights and grants of a key.
pub(super) fn entries(key: &Key) -> Vec<Entry> {
    let is_super_user = is_super_user(key);
    let of_rights = resources(key).into_iter().flat_map(|(resource, pattern)| {
        let rights = key.rights.iter();
        rights.map(move |right| Entry {
            resource,
            pattern: pattern.clone(),
            operations: operations(right, resource),
            grant: None,
            is_super_user,
        })
    });
    let of_grants = key.grants.iter().map(|grant| Entry {
        resource: resource_type(grant.kind),
        pattern: Pattern::of(&grant.name),
        operations: granted_operations(grant),
        grant: Some(grant.clone()),
        is_super_user: false,
    });
    of_rights.chain(of_grants).collect()
}

fn resource_type(kind: GrantKind) -> i8 {
    match kind {
        GrantKind::Hub | GrantKind::NewHub => TOPIC,
        GrantKind::Group => GROUP,
        GrantKind::TransactionalId => TRANSACTIONAL_ID,
    }
}

pub(super) fn granted_operations(grant: &Grant) -> &'static [i8] {
    match grant.kind {
        GrantKind::NewHub => &[CREATE],
        kind => operations(grant.right, resource_type(kind)),
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
    /// Whether it selects bindings of this key.
    pub(super) fn selects_key(&self, key: &Key) -> bool {
        let is_own = |filter: &str| filter.strip_prefix(USER) == Some(&key.name);
        let is_any_host = |host: &str| host == WILDCARD;
        self.principal.as_deref().is_none_or(is_own)
            && self.host.as_deref().is_none_or(is_any_host)
            && selects(self.permission, ALLOW)
    }

    /// The operations of the entry that it selects. Rights of a super user are no bindings in Kafka, so they are shown to who
    /// asks for this user only.
    pub(super) fn selected(&self, entry: &Entry) -> Vec<i8> {
        if entry.is_super_user && self.principal.is_none() {
            return Vec::new();
        }
        if !selects(self.resource, entry.resource) || !self.matches_pattern(&entry.pattern) {
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
