//! CreateAcls and DeleteAcls: bindings become grants of keys and are taken back.
//!
//! Several operations of Kafka are one right here, `manage`: bindings for all of them in one request grant it, and
//! deleting them in one request revokes it. CREATE alone is a grant of its own.

use std::collections::BTreeMap;

use highwater_access::{Grant, GrantKind, Right};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
};

use super::super::{Refusal, some_text, text, with_refusal};
use super::binding::{
    ALL, ALLOW, CLUSTER, DESCRIBE, Entry, Filter, GROUP, LITERAL, PREFIXED, Pattern, TOPIC,
    TRANSACTIONAL_ID, USER, WILDCARD, entries, granted_operations, possible_grants,
};
use super::keys;
use crate::access::{UserChange, UserChangeRequest};
use crate::request::RequestContext;

/// Of topics, groups and transactional ids.
const NAME_BYTES_MAX: usize = 1024;

/// A binding that a grant can come from.
#[derive(Clone, Debug)]
struct Binding {
    user: String,
    resource: i8,
    pattern: Pattern,
    operation: i8,
}

fn refused(reason: impl ToString) -> Refusal {
    Refusal::new(Code::InvalidRequest, reason)
}

impl Binding {
    fn parse(creation: &AclCreation) -> Result<Binding, Refusal> {
        if creation.permission_type != ALLOW {
            let reason = "there are no deny rules: a key has no right that it was not given";
            return Err(refused(reason));
        }
        if &*creation.host != WILDCARD {
            return Err(refused("rights hold for all hosts: use the host *"));
        }
        let user = match creation.principal.strip_prefix(USER) {
            Some(WILDCARD) => {
                return Err(refused("a right is that of one key: there is no User:*"));
            }
            Some(user) => user.to_owned(),
            None => return Err(refused("a principal is User:NAME, the name of a key")),
        };
        let resource = creation.resource_type;
        if resource == CLUSTER {
            let reason = "rights over the node need a key without limits: POST /api/keys, or [[keys]] in the settings";
            return Err(refused(reason));
        }
        if ![TOPIC, GROUP, TRANSACTIONAL_ID].contains(&resource) {
            return Err(refused(
                "rights are over topics, groups and transactional ids",
            ));
        }
        Ok(Binding {
            user,
            resource,
            pattern: pattern(creation)?,
            operation: creation.operation,
        })
    }

    /// The grant of this kind over its names.
    fn grant(&self, right: Right, kind: GrantKind) -> Grant {
        Grant {
            right,
            kind,
            name: self.pattern.key_name(),
        }
    }
}

fn pattern(creation: &AclCreation) -> Result<Pattern, Refusal> {
    let (kind, name) = (creation.resource_pattern_type, &*creation.resource_name);
    if ![LITERAL, PREFIXED].contains(&kind) {
        return Err(refused("a pattern is literal or a prefix"));
    }
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(refused(format!("a name has 1 to {NAME_BYTES_MAX} bytes")));
    }
    if kind == LITERAL && name.len() > 1 && name.ends_with('*') {
        return Err(refused(
            "a name that ends with * cannot be distinguished from a prefix",
        ));
    }
    Ok(Pattern {
        kind,
        name: name.to_owned(),
    })
}

/// Bindings over the same names of one user, which are judged together.
struct Together<'a> {
    bindings: Vec<&'a Binding>,
    /// The grants that the user has over these names.
    held: Vec<Grant>,
}

impl Together<'_> {
    /// The grants that the bindings ask for, exactly.
    fn grants(&self) -> Vec<Grant> {
        let Some(first) = self.bindings.first() else {
            return Vec::new();
        };
        let held = self.held.iter().flat_map(granted_operations).copied();
        let asked = self.bindings.iter().map(|binding| binding.operation);
        let operations: Vec<i8> = held.chain(asked).collect();
        let mut grants: Vec<Grant> = Vec::new();
        for (right, kind) in possible_grants(first.resource) {
            let grant = first.grant(*right, *kind);
            let has = |operation: &i8| operations.contains(operation);
            let is_asked = has(&ALL) || granted_operations(&grant).iter().all(has);
            // A part of a right that is given as a whole.
            let is_part = (grants.iter().chain(&self.held))
                .any(|known| known.right == grant.right && known.kind != grant.kind);
            if is_asked && !(is_part && *kind == GrantKind::NewHub) {
                grants.push(grant);
            }
        }
        grants
    }

    /// Whether what the user is given covers the operation.
    fn check(&self, operation: i8, grants: &[Grant]) -> Result<(), Refusal> {
        let mut all = grants.iter().chain(&self.held);
        let is_covered = match operation {
            ALL => !grants.is_empty(),
            // It comes with every right.
            DESCRIBE => all.next().is_some(),
            _ => all.any(|grant| granted_operations(grant).contains(&operation)),
        };
        let resource = self.bindings.first().map_or(0, |first| first.resource);
        match is_covered {
            true => Ok(()),
            false => Err(refused(why_not(operation, resource))),
        }
    }
}

fn why_not(operation: i8, resource: i8) -> &'static str {
    match (operation, resource) {
        (DESCRIBE, _) => {
            "describing comes with READ, WRITE and the right to manage, and is no right of its own"
        }
        (_, TOPIC) => {
            "a topic has READ (listen), WRITE (send), CREATE, and manage: CREATE, DELETE, ALTER, DESCRIBE_CONFIGS and \
             ALTER_CONFIGS at once, or ALL"
        }
        (_, GROUP) => "a group has READ (listen) and DELETE (manage)",
        _ => "a transactional id has WRITE (send)",
    }
}

type Names<'a> = (&'a str, i8, &'a Pattern);

pub(crate) async fn create(
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let parsed: Vec<Result<Binding, Refusal>> = match keys(context) {
        Ok(_) => request.creations.iter().map(Binding::parse).collect(),
        Err(refusal) => {
            let all = request.creations.iter();
            all.map(|_| Err(refusal.clone())).collect()
        }
    };
    let mut groups: BTreeMap<Names<'_>, Together<'_>> = BTreeMap::new();
    let known = context.broker.services.authorizer.keys();
    for binding in parsed.iter().flatten() {
        let names = (&*binding.user, binding.resource, &binding.pattern);
        let held = || {
            let key = known.iter().find(|key| key.name == binding.user);
            let grants = key.into_iter().flat_map(|key| &key.grants);
            let possible = possible_grants(binding.resource);
            let is_over_names = |grant: &&Grant| {
                let kind = (grant.right, grant.kind);
                grant.name == binding.pattern.key_name() && possible.contains(&kind)
            };
            grants.filter(is_over_names).cloned().collect()
        };
        let group = groups.entry(names).or_insert_with(|| Together {
            bindings: Vec::new(),
            held: held(),
        });
        group.bindings.push(binding);
    }
    let outcomes = give(context, &groups).await;
    let results = parsed.iter().map(|parsed| {
        let outcome = parsed.as_ref().map_err(Clone::clone).and_then(|binding| {
            let names = (&*binding.user, binding.resource, &binding.pattern);
            let grants = groups[&names].grants();
            groups[&names].check(binding.operation, &grants)?;
            match outcomes.get(&*binding.user) {
                Some(Some(refusal)) => Err(refusal.clone()),
                _ => Ok(()),
            }
        });
        let user = parsed.as_ref().map_or("", |binding| &*binding.user);
        context.audit(user, outcome.as_ref().err().map(|refusal| refusal.code));
        with_refusal!(context, AclCreationResult::default(), outcome)
    });
    CreateAclsResponse::default().with_results(results.collect())
}

/// Gives each user its grants at once. The outcomes have the refusal of each user, if there is one.
async fn give<'a>(
    context: &RequestContext,
    groups: &BTreeMap<Names<'a>, Together<'_>>,
) -> BTreeMap<&'a str, Option<Refusal>> {
    let mut changes: BTreeMap<&str, Vec<UserChange>> = BTreeMap::new();
    for ((user, ..), together) in groups {
        let of_user = changes.entry(user).or_default();
        let new = together.grants().into_iter();
        of_user.extend(
            new.filter(|grant| !together.held.contains(grant))
                .map(UserChange::Grant),
        );
    }
    let mut outcomes = BTreeMap::new();
    for (user, changes) in changes {
        let refusal = change(context, user, changes).await.err();
        outcomes.insert(user, refusal);
    }
    outcomes
}

async fn change(
    context: &RequestContext,
    user: &str,
    changes: Vec<UserChange>,
) -> Result<(), Refusal> {
    if changes.is_empty() {
        return Ok(());
    }
    let request = UserChangeRequest {
        user: user.to_owned(),
        changes,
        validate_only: false,
    };
    let authorizer = &context.broker.services.authorizer;
    let changed = authorizer.change_user(&context.identity, request).await;
    changed.map_err(|error| Refusal::of_user(error, Code::InvalidRequest))
}

/// The bindings of a filter: those of an entry, of which a filter must take all or none.
struct Selection {
    filter: usize,
    user: String,
    entry: Entry,
    operations: Vec<i8>,
}

impl Selection {
    fn check(&self) -> Result<&Grant, Refusal> {
        let Some(grant) = &self.entry.grant else {
            let reason = "this right was given with the key: revoke the key (DELETE /api/keys/{name}), or change [[keys]] in the settings";
            return Err(refused(reason));
        };
        match self.operations.len() == self.entry.operations.len() {
            true => Ok(grant),
            false => Err(refused(
                "manage is taken as a whole: select all of its operations (ANY)",
            )),
        }
    }
}

pub(crate) async fn delete(
    context: &RequestContext,
    request: DeleteAclsRequest,
) -> DeleteAclsResponse {
    let keys = match keys(context) {
        Ok(keys) => keys,
        Err(refusal) => {
            context.audit("acls", Some(refusal.code));
            let results = request.filters.iter().map(|_| {
                let refused: Result<(), Refusal> = Err(refusal.clone());
                with_refusal!(context, DeleteAclsFilterResult::default(), refused)
            });
            return DeleteAclsResponse::default().with_filter_results(results.collect());
        }
    };
    let filters: Vec<Filter> = request.filters.into_iter().map(filter).collect();
    // What a filter takes is not there for the next one, so the response has each binding once.
    let mut selections: Vec<Selection> = Vec::new();
    for key in &keys {
        for entry in entries(key) {
            let selected = filters.iter().enumerate().find_map(|(number, filter)| {
                let is_own = filter.selects_key(key);
                let operations = is_own.then(|| filter.selected(&entry))?;
                (!operations.is_empty()).then_some((number, operations))
            });
            if let Some((filter, operations)) = selected {
                selections.push(Selection {
                    filter,
                    user: key.name.clone(),
                    entry,
                    operations,
                });
            }
        }
    }
    let outcomes = take(context, &selections).await;
    let results = (0..filters.len()).map(|number| {
        let of_filter = selections.iter().filter(|one| one.filter == number);
        let matching = of_filter.flat_map(|one| {
            let outcome = one.check().map(|_| ());
            let refusal = outcome.err().or_else(|| outcomes.get(&*one.user)?.clone());
            context.audit(&one.user, refusal.as_ref().map(|refusal| refusal.code));
            deleted(context, one, refusal)
        });
        DeleteAclsFilterResult::default()
            .with_error_message(None)
            .with_matching_acls(matching.collect())
    });
    DeleteAclsResponse::default().with_filter_results(results.collect())
}

fn filter(filter: DeleteAclsFilter) -> Filter {
    Filter {
        resource: filter.resource_type_filter,
        name: filter.resource_name_filter.map(|name| name.to_string()),
        pattern: filter.pattern_type_filter,
        principal: filter.principal_filter.map(|name| name.to_string()),
        host: filter.host_filter.map(|host| host.to_string()),
        operation: filter.operation,
        permission: filter.permission_type,
    }
}

async fn take<'a>(
    context: &RequestContext,
    selections: &'a [Selection],
) -> BTreeMap<&'a str, Option<Refusal>> {
    let mut changes: BTreeMap<&str, Vec<UserChange>> = BTreeMap::new();
    for selection in selections {
        if let Ok(grant) = selection.check() {
            let of_user = changes.entry(&selection.user).or_default();
            of_user.push(UserChange::Revoke(grant.clone()));
        }
    }
    let mut outcomes = BTreeMap::new();
    for (user, changes) in changes {
        outcomes.insert(user, change(context, user, changes).await.err());
    }
    outcomes
}

fn deleted(
    context: &RequestContext,
    selection: &Selection,
    refusal: Option<Refusal>,
) -> Vec<DeleteAclsMatchingAcl> {
    let acls = selection.operations.iter().map(|operation| {
        let acl = DeleteAclsMatchingAcl::default()
            .with_resource_type(selection.entry.resource)
            .with_resource_name(text(&*selection.entry.pattern.name))
            .with_pattern_type(selection.entry.pattern.kind)
            .with_principal(text(format!("{USER}{}", selection.user)))
            .with_host(text(WILDCARD))
            .with_operation(*operation)
            .with_permission_type(ALLOW);
        let outcome = match &refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        };
        with_refusal!(context, acl, outcome)
    });
    acls.collect()
}
