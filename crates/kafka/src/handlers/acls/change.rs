//! CreateAcls and DeleteAcls: bindings become grants and rules of keys, or rules for everybody, and are taken back.
//!
//! What one key is allowed are grants; what is denied, and what everybody is allowed, are rules. Several operations of
//! Kafka are one right here, `manage`: it is given or denied to who asks for all of them at once, and taken the same
//! way. CREATE alone is a binding of its own.

use std::collections::BTreeMap;

use highwater_access::{AccessEffect, AccessKind, AccessRule, EVERYBODY, Grant};
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
    ALL, ALLOW, CLUSTER, DENY, DESCRIBE, Entry, Filter, GROUP, LITERAL, PREFIXED, Pattern,
    StoredBinding, TOPIC, TRANSACTIONAL_ID, USER, WILDCARD, possible_grants, possible_rules,
};
use super::holders;
use crate::access::{UserChange, UserChangeRequest};
use crate::request::RequestContext;

/// Of topics, groups and transactional ids.
const NAME_BYTES_MAX: usize = 1024;

/// A binding that a grant or a rule can come from.
#[derive(Clone, Debug)]
struct Binding {
    user: String,
    resource: i8,
    pattern: Pattern,
    operation: i8,
    effect: AccessEffect,
}

fn refused(reason: impl ToString) -> Refusal {
    Refusal::new(Code::InvalidRequest, reason)
}

impl Binding {
    fn parse(creation: &AclCreation) -> Result<Binding, Refusal> {
        let effect = match creation.permission_type {
            ALLOW => AccessEffect::Allow,
            DENY => AccessEffect::Deny,
            _ => return Err(refused("a binding allows or denies")),
        };
        if &*creation.host != WILDCARD {
            return Err(refused("rights hold for all hosts: use the host *"));
        }
        let Some(user) = creation.principal.strip_prefix(USER) else {
            let reason = "a principal is User:NAME, the name of a key, or User:*";
            return Err(refused(reason));
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
            user: user.to_owned(),
            resource,
            pattern: pattern(creation)?,
            operation: creation.operation,
            effect,
        })
    }

    /// The grants that bindings like this can ask for: only what one key is allowed.
    fn possible_grants(&self) -> Vec<Grant> {
        if self.user == EVERYBODY || self.effect == AccessEffect::Deny {
            return Vec::new();
        }
        let possible = possible_grants(self.resource).iter();
        let grant = possible.map(|(right, kind)| Grant {
            right: *right,
            kind: *kind,
            name: self.pattern.key_name(),
        });
        grant.collect()
    }

    /// What bindings like this can become.
    fn possible(&self) -> Vec<StoredBinding> {
        let grants = self.possible_grants();
        let rules = possible_rules(self.resource)
            .iter()
            .map(|(access, kind)| AccessRule {
                effect: self.effect,
                access: *access,
                kind: *kind,
                name: self.pattern.key_name(),
            });
        let is_rule = |rule: &AccessRule| grants.is_empty() || rule.access == AccessKind::See;
        let rules = rules
            .filter(is_rule)
            .map(StoredBinding::Rule)
            .collect::<Vec<_>>();
        let grants = grants.into_iter().map(StoredBinding::Grant);
        grants.chain(rules).collect()
    }

    fn names(&self) -> Names<'_> {
        (&self.user, self.effect, self.resource, &self.pattern)
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
#[derive(Default)]
struct Together<'a> {
    bindings: Vec<&'a Binding>,
    /// What the user has over these names.
    held: Vec<StoredBinding>,
}

impl Together<'_> {
    /// What the bindings ask for, exactly.
    fn asked(&self) -> Vec<StoredBinding> {
        let Some(first) = self.bindings.first() else {
            return Vec::new();
        };
        let held = self
            .held
            .iter()
            .flat_map(StoredBinding::operations)
            .copied();
        let asked = self.bindings.iter().map(|binding| binding.operation);
        let operations: Vec<i8> = held.chain(asked).collect();
        let has = |operation: &i8| operations.contains(operation);
        let mut stored: Vec<StoredBinding> = Vec::new();
        for possible in first.possible() {
            let is_grant = matches!(possible, StoredBinding::Grant(_));
            let is_asked = is_grant && has(&ALL) || possible.operations().iter().all(has);
            // A part of a right that is given as a whole.
            let creates = |known: &StoredBinding| {
                let is_whole = !known.is_creation();
                is_whole
                    && (possible.operations().iter()).all(|one| known.operations().contains(one))
            };
            let is_part = possible.is_creation() && stored.iter().chain(&self.held).any(creates);
            if is_asked && !is_part {
                stored.push(possible);
            }
        }
        stored
    }

    /// Whether what the user has then covers the operation.
    fn check(&self, operation: i8, asked: &[StoredBinding]) -> Result<(), Refusal> {
        let mut all = asked.iter().chain(&self.held);
        let resource = self.bindings.first().map_or(0, |first| first.resource);
        let is_grant = |one: &StoredBinding| matches!(one, StoredBinding::Grant(_));
        let is_covered = match operation {
            ALL if asked.iter().any(is_grant) => true,
            // It comes with every right.
            DESCRIBE if resource != TOPIC => all.next().is_some(),
            _ => all.any(|one| one.operations().contains(&operation)),
        };
        match is_covered {
            true => Ok(()),
            false => Err(refused(why_not(operation, resource))),
        }
    }
}

fn why_not(operation: i8, resource: i8) -> &'static str {
    match (operation, resource) {
        (DESCRIBE, _) => {
            "describing comes with READ, WRITE and DELETE of a group or transactional id, and is no right of its own"
        }
        (_, TOPIC) => {
            "a topic has READ (listen), WRITE (send), DESCRIBE, CREATE, and manage: CREATE, DELETE, ALTER, \
             DESCRIBE_CONFIGS and ALTER_CONFIGS at once, or ALL"
        }
        (_, GROUP) => "a group has READ (listen) and DELETE (manage), or ALL",
        _ => "a transactional id has WRITE (send), or ALL",
    }
}

type Names<'a> = (&'a str, AccessEffect, i8, &'a Pattern);

pub(crate) async fn create(
    context: &RequestContext,
    request: CreateAclsRequest,
) -> CreateAclsResponse {
    let (holders, parsed) = match holders(context) {
        Ok(holders) => {
            let parsed = request.creations.iter().map(Binding::parse).collect();
            (Some(holders), parsed)
        }
        Err(refusal) => {
            let all = request.creations.iter();
            (None, all.map(|_| Err(refusal.clone())).collect())
        }
    };
    let parsed: Vec<Result<Binding, Refusal>> = parsed;
    let mut groups: BTreeMap<Names<'_>, Together<'_>> = BTreeMap::new();
    for binding in parsed.iter().flatten() {
        let group = groups.entry(binding.names()).or_insert_with(|| {
            let possible = binding.possible();
            let stored = holders
                .iter()
                .flat_map(|holders| holders.stored(&binding.user));
            Together {
                bindings: Vec::new(),
                held: stored.filter(|stored| possible.contains(stored)).collect(),
            }
        });
        group.bindings.push(binding);
    }
    let outcomes = give(context, &groups).await;
    let results = parsed.iter().map(|parsed| {
        let outcome = parsed.as_ref().map_err(Clone::clone).and_then(|binding| {
            let together = &groups[&binding.names()];
            together.check(binding.operation, &together.asked())?;
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

/// Gives each user its grants and rules at once. The outcomes have the refusal of each user, if there is one.
async fn give<'a>(
    context: &RequestContext,
    groups: &BTreeMap<Names<'a>, Together<'_>>,
) -> BTreeMap<&'a str, Option<Refusal>> {
    let mut changes: BTreeMap<&str, Vec<UserChange>> = BTreeMap::new();
    for ((user, ..), together) in groups {
        let asked = together.asked().into_iter();
        let new = asked.filter(|one| !together.held.contains(one));
        let of_user = changes.entry(user).or_default();
        of_user.extend(new.map(StoredBinding::addition));
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
    fn check(&self) -> Result<&StoredBinding, Refusal> {
        let Some(stored) = &self.entry.stored else {
            let reason = "this right was given with the key: revoke the key (DELETE /api/keys/{name}), or change [[keys]] in the settings";
            return Err(refused(reason));
        };
        match self.operations.len() == self.entry.operations.len() {
            true => Ok(stored),
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
    let holders = match holders(context) {
        Ok(holders) => holders,
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
    for (user, entries) in holders.iter() {
        for entry in entries {
            let selected = filters.iter().enumerate().find_map(|(number, filter)| {
                let is_own = filter.selects_user(user);
                let operations = is_own.then(|| filter.selected(&entry))?;
                (!operations.is_empty()).then_some((number, operations))
            });
            if let Some((filter, operations)) = selected {
                selections.push(Selection {
                    filter,
                    user: user.to_owned(),
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
        if let Ok(stored) = selection.check() {
            let of_user = changes.entry(&selection.user).or_default();
            of_user.push(stored.clone().removal());
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
            .with_permission_type(selection.entry.permission);
        let outcome = match &refusal {
            Some(refusal) => Err(refusal.clone()),
            None => Ok(()),
        };
        with_refusal!(context, acl, outcome)
    });
    acls.collect()
}
