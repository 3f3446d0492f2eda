//! ACLs over the rights of keys: DescribeAcls shows them as Kafka's bindings, CreateAcls and DeleteAcls give and take
//! grants and rules of keys that are not in the settings, and rules for everybody.
//!
//! A binding that the node has no right for is refused with the reason, and none gives more than it says.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{DescribeAclsRequest, DescribeAclsResponse};

use super::{Refusal, some_text, text};
use crate::access::Resource;
use crate::request::RequestContext;

mod binding;
mod change;

use binding::{Filter, Holders, Pattern, USER, WILDCARD};
pub(crate) use change::{create, delete};

/// Whose bindings there are, for a client that may see and change the rights of the node.
fn holders(context: &RequestContext) -> Result<Holders, Refusal> {
    context.allow(Resource::Node)?;
    let authorizer = &context.broker.services.authorizer;
    let keys = authorizer.keys();
    match keys.is_empty() {
        true => {
            let reason = "the node has no keys, so every client may do everything";
            Err(Refusal::new(Code::SecurityDisabled, reason))
        }
        false => Ok(Holders {
            keys,
            everybody: authorizer.everybody(),
        }),
    }
}

/// An operation that a principal is allowed or denied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Permission {
    principal: String,
    operation: i8,
    permission: i8,
}

/// Bindings by resource, as Kafka groups them: its type, its pattern, and operations of principals.
type Bindings = BTreeMap<(i8, Pattern), Vec<Permission>>;

fn bindings(filter: &Filter, holders: &Holders) -> Bindings {
    let mut bindings = Bindings::new();
    let selected = holders.iter().filter(|(user, _)| filter.selects_user(user));
    for (user, entries) in selected {
        for entry in entries {
            for operation in filter.selected(&entry) {
                let resource = (entry.resource, entry.pattern.clone());
                let binding = Permission {
                    principal: format!("{USER}{user}"),
                    operation,
                    permission: entry.permission,
                };
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
    match holders(context) {
        Err(refusal) => response
            .with_error_code(context.error_code(&refusal.code))
            .with_error_message(some_text(refusal.reason)),
        Ok(holders) => {
            let described = bindings(&filter, &holders).into_iter().map(described);
            response.with_resources(described.collect())
        }
    }
}

fn described(
    ((resource, pattern), bindings): ((i8, Pattern), Vec<Permission>),
) -> DescribeAclsResource {
    let acls = bindings.into_iter().map(|binding| {
        AclDescription::default()
            .with_principal(text(binding.principal))
            .with_host(text(WILDCARD))
            .with_operation(binding.operation)
            .with_permission_type(binding.permission)
    });
    DescribeAclsResource::default()
        .with_resource_type(resource)
        .with_resource_name(text(pattern.name))
        .with_pattern_type(pattern.kind)
        .with_acls(acls.collect())
}

#[cfg(test)]
mod tests;
