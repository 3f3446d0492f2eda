//! ACLs over the rights of keys: DescribeAcls shows them as Kafka's bindings, CreateAcls and DeleteAcls give and take grants of
//! keys that are not in the settings.
//!
//! A binding that the node has no right for is refused with the reason, and none gives more than it says.

use std::collections::BTreeMap;
use std::sync::Arc;

use highwater_access::Key;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::{Refusal, some_text, text};
use crate::access::Resource;
use crate::request::RequestContext;

mod binding;
mod change;

use binding::{ALLOW, Filter, Pattern, USER, WILDCARD, entries};
pub(crate) use change::{create, delete};

/// The keys, for a client that may see and change the rights of the node.
fn keys(context: &RequestContext) -> Result<Vec<Arc<Key>>, Refusal> {
    context.allow(Resource::Node)?;
    let keys = context.broker.services.authorizer.keys();
    match keys.is_empty() {
        true => {
            let reason = "the node has no keys, so every client may do everything";
            Err(Refusal::new(Code::SecurityDisabled, reason))
        }
        false => Ok(keys),
    }
}

/// Bindings by resource, as Kafka groups them: its type, its pattern, and operations of principals.
type Bindings = BTreeMap<(i8, Pattern), Vec<(String, i8)>>;

fn bindings(filter: &Filter, keys: &[Arc<Key>]) -> Bindings {
    let mut bindings = Bindings::new();
    for key in keys.iter().filter(|key| filter.selects_key(key)) {
        let principal = format!("{USER}{}", key.name);
        for entry in entries(key) {
            for operation in filter.selected(&entry) {
                let resource = (entry.resource, entry.pattern.clone());
                let binding = (principal.clone(), operation);
                let of_resource = bindings.entry(resource).or_default();
                // A right and a grant may say the same.
                if !of_resource.contains(&binding) {
                    of_resource.push(binding);
                }
            }
        }
    }
    bindings
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeAclsRequest,
) -> DescribeAclsResponse {
    let response = DescribeAclsResponse::default().with_error_message(None);
    let filter = Filter {
        resource: request.resource_type_filter,
        name: request.resource_name_filter.map(|name| name.to_string()),
        pattern: request.pattern_type_filter,
        principal: request.principal_filter.map(|name| name.to_string()),
        host: request.host_filter.map(|host| host.to_string()),
        operation: request.operation,
        permission: request.permission_type,
    };
    match keys(context) {
        Err(refusal) => response
            .with_error_code(context.error_code(&refusal.code))
            .with_error_message(some_text(refusal.reason)),
        Ok(keys) => {
            let described = bindings(&filter, &keys).into_iter().map(described);
            response.with_resources(described.collect())
        }
    }
}

fn described(
    ((resource, pattern), bindings): ((i8, Pattern), Vec<(String, i8)>),
) -> DescribeAclsResource {
    let acls = bindings.into_iter().map(|(principal, operation)| {
        AclDescription::default()
            .with_principal(text(principal))
            .with_host(text(WILDCARD))
            .with_operation(operation)
            .with_permission_type(ALLOW)
    });
    DescribeAclsResource::default()
        .with_resource_type(resource)
        .with_resource_name(text(pattern.name))
        .with_pattern_type(pattern.kind)
        .with_acls(acls.collect())
}

#[cfg(test)]
mod tests;
