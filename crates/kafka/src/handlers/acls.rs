//! ACLs over the rights of keys: DescribeAcls shows them as Kafka's bindings; CreateAcls and DeleteAcls say where they are
//! changed, because a right of a key holds for all of its names, and a binding is for one.

use std::sync::Arc;

use highwater_access::{Key, KeyScope, NamePatterns, Right};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::DeleteAclsFilterResult;
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};

use super::{some_text, text};
use crate::access::Resource;
use crate::request::RequestContext;

const ANY: i8 = 1;
const TOPIC: i8 = 2;
const GROUP: i8 = 3;
const CLUSTER: i8 = 4;
const TRANSACTIONAL_ID: i8 = 5;
const CLUSTER_NAME: &str = "kafka-cluster";

/// Kinds of patterns. A filter can have `MATCH`: all patterns that cover the name.
const MATCH: i8 = 2;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const WILDCARD: &str = "*";

const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DELETE: i8 = 6;
const ALTER: i8 = 7;
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;
const ALTER_CONFIGS: i8 = 11;
const ALLOW: i8 = 3;

const SETTINGS: &str = "rights belong to keys: change [[keys]] in the settings of the node, or add or revoke a key (/api/keys)";

/// What a right over a kind of resource allows. Describing comes with each, as in Kafka.
fn operations(right: Right, resource: i8) -> &'static [i8] {
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
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    kind: i8,
    name: String,
}

fn patterns(names: &NamePatterns) -> Vec<Pattern> {
    let literal = |name: &str| Pattern {
        kind: LITERAL,
        name: name.to_owned(),
    };
    match names {
        NamePatterns::All => vec![literal(WILDCARD)],
        NamePatterns::Listed(names) => (names.iter())
            .map(|name| match name.strip_suffix('*') {
                Some("") => literal(WILDCARD),
                Some(prefix) => Pattern {
                    kind: PREFIXED,
                    name: prefix.to_owned(),
                },
                None => literal(name),
            })
            .collect(),
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
    let node = (key.scope == KeyScope::UNLIMITED).then(|| {
        let name = CLUSTER_NAME.to_owned();
        let kind = LITERAL;
        (CLUSTER, Pattern { kind, name })
    });
    named.chain(node).collect()
}

/// Whether a number of a filter selects this one.
fn selects(filter: i8, value: i8) -> bool {
    filter == ANY || filter == value
}

fn matches_pattern(request: &DescribeAclsRequest, pattern: &Pattern) -> bool {
    let name = request.resource_name_filter.as_deref();
    match (request.pattern_type_filter, name) {
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

fn described(request: &DescribeAclsRequest, key: &Key) -> Vec<DescribeAclsResource> {
    let principal = format!("User:{}", key.name);
    let is_own = |filter: &str| *filter == *principal;
    let is_any_host = |host: &str| host == WILDCARD;
    let is_wanted = request.principal_filter.as_deref().is_none_or(is_own)
        && request.host_filter.as_deref().is_none_or(is_any_host)
        && selects(request.permission_type, ALLOW);
    if !is_wanted {
        return Vec::new();
    }
    let kinds = resources(key).into_iter().filter(|(kind, pattern)| {
        selects(request.resource_type_filter, *kind) && matches_pattern(request, pattern)
    });
    let described = kinds.filter_map(|(kind, pattern)| {
        let rights = key.rights.iter();
        let operations = rights.flat_map(|right| operations(right, kind));
        let wanted = operations.filter(|operation| selects(request.operation, **operation));
        let acls: Vec<AclDescription> = wanted
            .map(|operation| {
                AclDescription::default()
                    .with_principal(text(&*principal))
                    .with_host(text(WILDCARD))
                    .with_operation(*operation)
                    .with_permission_type(ALLOW)
            })
            .collect();
        let resource = DescribeAclsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(pattern.name))
            .with_pattern_type(pattern.kind);
        (!acls.is_empty()).then(|| resource.with_acls(acls))
    });
    described.collect()
}

/// Bindings of one resource are together, as in Kafka.
fn merged(all: Vec<DescribeAclsResource>) -> Vec<DescribeAclsResource> {
    let mut merged: Vec<DescribeAclsResource> = Vec::new();
    let place = |one: &DescribeAclsResource| {
        (
            one.resource_type,
            one.resource_name.clone(),
            one.pattern_type,
        )
    };
    let mut all = all;
    all.sort_by_key(place);
    for resource in all {
        match merged
            .last_mut()
            .filter(|last| place(last) == place(&resource))
        {
            Some(last) => last.acls.extend(resource.acls),
            None => merged.push(resource),
        }
    }
    merged
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    let response = DescribeAclsResponse::default().with_error_message(None);
    let keys: Vec<Arc<Key>> = context.broker.services.authorizer.keys();
    let refused = match context.allow(Resource::Node) {
        Err(code) => Some((code, code.to_string())),
        Ok(()) if keys.is_empty() => {
            let reason = "the node has no keys, so every client may do everything";
            Some((Code::SecurityDisabled, reason.to_owned()))
        }
        Ok(()) => None,
    };
    match refused {
        Some((code, reason)) => response
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(reason)),
        None => {
            let described = keys.iter().flat_map(|key| described(&request, key));
            response.with_resources(merged(described.collect()))
        }
    }
}

/// Why no binding is created or deleted. Recorded in the audit log.
fn refusal(context: &RequestContext) -> (Code, String) {
    let (code, reason) = match context.allow(Resource::Node) {
        Ok(()) => (Code::InvalidRequest, SETTINGS.to_owned()),
        Err(code) => (code, code.to_string()),
    };
    context.audit("acls", Some(code));
    (code, reason)
}

pub(crate) async fn create(
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let (code, reason) = refusal(context);
    let results = request.creations.iter().map(|_| {
        AclCreationResult::default()
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(&reason))
    });
    CreateAclsResponse::default().with_results(results.collect())
}

pub(crate) async fn delete(
    context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let (code, reason) = refusal(context);
    let results = request.filters.iter().map(|_| {
        DeleteAclsFilterResult::default()
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(&reason))
    });
    DeleteAclsResponse::default().with_filter_results(results.collect())
}

#[cfg(test)]
mod tests {
    use highwater_access::Rights;

    use super::*;

    fn filter() -> DescribeAclsRequest {
        DescribeAclsRequest::default()
            .with_resource_type_filter(ANY)
            .with_resource_name_filter(None)
            .with_pattern_type_filter(ANY)
            .with_principal_filter(None)
            .with_host_filter(None)
            .with_operation(ANY)
            .with_permission_type(ANY)
    }

    fn reader() -> Key {
        let rights: Rights = [Right::Listen].into_iter().collect();
        Key::new(
            "app",
            "secret",
            rights,
            KeyScope::of_hubs("app", ["t", "log-*"]),
        )
    }

    fn names(request: &DescribeAclsRequest, key: &Key) -> Vec<(i8, String, i8)> {
        let described = described(request, key).into_iter();
        described
            .map(|one| {
                (
                    one.resource_type,
                    one.resource_name.to_string(),
                    one.pattern_type,
                )
            })
            .collect()
    }

    // proves G1
    #[test]
    fn a_key_is_shown_as_bindings_of_its_names() {
        let all = names(&filter(), &reader());
        let expected = [
            (TOPIC, "t", LITERAL),
            (TOPIC, "log-", PREFIXED),
            (GROUP, "app", LITERAL),
            (GROUP, "app-", PREFIXED),
            (GROUP, "app.", PREFIXED),
        ];
        assert_eq!(
            all,
            expected.map(|(kind, name, pattern)| (kind, name.to_owned(), pattern))
        );
        let root = Key::new("root", "secret", Rights::ALL, KeyScope::UNLIMITED);
        let kinds: Vec<i8> = names(&filter(), &root).iter().map(|one| one.0).collect();
        assert_eq!(kinds, [TOPIC, GROUP, TRANSACTIONAL_ID, CLUSTER]);
    }

    #[test]
    fn a_filter_takes_names_kinds_operations_and_principals() {
        let count = |request: DescribeAclsRequest| names(&request, &reader()).len();
        let named = |name, pattern| {
            filter()
                .with_resource_type_filter(TOPIC)
                .with_resource_name_filter(Some(text(name)))
                .with_pattern_type_filter(pattern)
        };
        assert_eq!(count(named("log-1", MATCH)), 1);
        assert_eq!(count(named("log-1", LITERAL)), 0);
        assert_eq!(count(named("log-", PREFIXED)), 1);
        assert_eq!(count(named("t", LITERAL)), 1);
        assert_eq!(count(filter().with_operation(WRITE)), 0);
        assert_eq!(count(filter().with_permission_type(2)), 0);
        assert_eq!(
            count(filter().with_principal_filter(Some(text("User:app")))),
            5
        );
        assert_eq!(
            count(filter().with_principal_filter(Some(text("User:other")))),
            0
        );
        assert_eq!(count(filter().with_host_filter(Some(text("127.0.0.1")))), 0);
    }
}
