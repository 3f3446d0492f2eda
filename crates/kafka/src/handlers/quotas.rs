//! Client quotas over the quotas of keys: DescribeClientQuotas shows them, AlterClientQuotas says where they are changed.

use std::sync::Arc;

use highwater_access::Key;
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, alter_client_quotas_response,
};

use super::{Refusal, some_text, text};
use crate::access::Resource;
use crate::request::RequestContext;

const USER: &str = "user";
/// Kafka's other kinds of entities. No quota here is for one of them.
const OTHER_ENTITIES: [&str; 2] = ["client-id", "ip"];

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

const SETTINGS: &str = "quotas belong to keys: change [[keys]] in the settings of the node, or add a key (POST /api/keys)";

/// The quotas of a key that Kafka has a name for. Connections, and partitions by the hour, have none.
fn values(key: &Key) -> Vec<ValueData> {
    let quota = key.limiter.quota();
    let rates = [
        ("consumer_byte_rate", quota.bytes_out_per_second),
        ("producer_byte_rate", quota.bytes_in_per_second),
    ];
    let values = rates.into_iter().filter_map(|(name, rate)| {
        let value = ValueData::default().with_key(text(name));
        Some(value.with_value(rate? as f64))
    });
    values.collect()
}

/// Whether a filter can match a user alone. Without `strict` users match a filter that does not name them, too.
fn user_filter(
    components: &[ComponentData],
    strict: bool,
) -> Result<impl Fn(&str) -> bool, Refusal> {
    let mut wanted: Option<Option<String>> = None;
    let mut none = strict && components.is_empty();
    for component in components {
        let kind = &*component.entity_type;
        if OTHER_ENTITIES.contains(&kind) {
            none = true;
            continue;
        }
        let name = component._match.as_ref().map(ToString::to_string);
        wanted = match (kind, component.match_type, name) {
            (USER, _, _) if wanted.is_some() => {
                return Err(Refusal::new(Code::InvalidRequest, "a user is named twice"));
            }
            (USER, EXACT, Some(name)) => Some(Some(name)),
            (USER, ANY, _) => Some(None),
            // No quota is for users without one of their own.
            (USER, DEFAULT, _) => {
                none = true;
                Some(None)
            }
            _ => {
                let reason = format!("no entity or match of this kind: {kind}");
                return Err(Refusal::new(Code::InvalidRequest, reason));
            }
        };
    }
    Ok(move |user: &str| {
        let is_named = match &wanted {
            Some(Some(name)) => name == user,
            Some(None) | None => true,
        };
        !none && is_named
    })
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let response = DescribeClientQuotasResponse::default().with_error_message(None);
    let filter = (context.allow(Resource::Node).map_err(Refusal::from))
        .and_then(|()| user_filter(&request.components, request.strict));
    let is_wanted = match filter {
        Ok(filter) => filter,
        Err(refusal) => {
            return response
                .with_error_code(context.error_code(&refusal.code))
                .with_error_message(some_text(refusal.reason))
                .with_entries(None);
        }
    };
    let keys: Vec<Arc<Key>> = context.broker.services.authorizer.keys();
    let limited = keys.iter().filter(|key| is_wanted(&key.name));
    let entries = limited.filter_map(|key| {
        let values = values(key);
        let user = EntityData::default()
            .with_entity_type(text(USER))
            .with_entity_name(some_text(&key.name));
        let entry = EntryData::default().with_entity(vec![user]);
        (!values.is_empty()).then(|| entry.with_values(values))
    });
    response.with_entries(Some(entries.collect()))
}

pub(crate) async fn alter(
    context: &RequestContext,
    request: AlterClientQuotasRequest,
) -> AlterClientQuotasResponse {
    let (code, reason) = match context.allow(Resource::Node) {
        Ok(()) => (Code::InvalidRequest, SETTINGS.to_owned()),
        Err(code) => (code, code.to_string()),
    };
    context.audit("quotas", Some(code));
    let entries = request.entries.into_iter().map(|entry| {
        let entities = entry.entity.into_iter().map(|entity| {
            alter_client_quotas_response::EntityData::default()
                .with_entity_type(entity.entity_type)
                .with_entity_name(entity.entity_name)
        });
        alter_client_quotas_response::EntryData::default()
            .with_error_code(context.error_code(&code))
            .with_error_message(some_text(&reason))
            .with_entity(entities.collect())
    });
    AlterClientQuotasResponse::default().with_entries(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn component(kind: &str, match_type: i8, name: Option<&str>) -> ComponentData {
        ComponentData::default()
            .with_entity_type(text(kind))
            .with_match_type(match_type)
            .with_match(name.map(text))
    }

    #[test]
    fn a_filter_is_for_users() {
        let matches = |components: &[ComponentData], strict| {
            user_filter(components, strict)
                .ok()
                .map(|filter| filter("app"))
        };
        assert_eq!(matches(&[], false), Some(true));
        assert_eq!(matches(&[], true), Some(false));
        let own = component("user", EXACT, Some("app"));
        assert_eq!(matches(std::slice::from_ref(&own), true), Some(true));
        let other = component("user", EXACT, Some("other"));
        assert_eq!(matches(&[other], true), Some(false));
        assert_eq!(matches(&[component("user", ANY, None)], true), Some(true));
        let default = component("user", DEFAULT, None);
        assert_eq!(matches(&[default], true), Some(false));
        let client = component("client-id", ANY, None);
        assert_eq!(matches(&[own.clone(), client], false), Some(false));
        assert_eq!(matches(&[own.clone(), own], false), None);
        assert_eq!(matches(&[component("host", ANY, None)], false), None);
    }
}
