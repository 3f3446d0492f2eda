//! Client quotas over the quotas of keys: DescribeClientQuotas shows the rates of bytes, AlterClientQuotas sets them for keys that
//! are not in the settings.

use std::sync::Arc;

use highwater_access::{Key, Usage};
use kafka_protocol::ResponseError as Code;
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse, alter_client_quotas_request, alter_client_quotas_response,
};

use super::{Refusal, some_text, text, with_refusal};
use crate::access::{Resource, UserChange, UserChangeRequest};
use crate::request::RequestContext;

const USER: &str = "user";
/// Kafka's other kinds of entities. No quota here is for one of them.
const OTHER_ENTITIES: [&str; 2] = ["client-id", "ip"];

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

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
    let allowed = context.allow(Resource::Node);
    let mut entries = Vec::with_capacity(request.entries.len());
    for entry in request.entries {
        let outcome = match allowed {
            Ok(()) => change(context, &entry, request.validate_only).await,
            Err(code) => Err(Refusal::from(code)),
        };
        if !request.validate_only {
            let user = user_of(&entry).unwrap_or_default();
            context.audit(user, outcome.as_ref().err().map(|refusal| refusal.code));
        }
        let entities = entry.entity.into_iter().map(|entity| {
            alter_client_quotas_response::EntityData::default()
                .with_entity_type(entity.entity_type)
                .with_entity_name(entity.entity_name)
        });
        let result =
            alter_client_quotas_response::EntryData::default().with_entity(entities.collect());
        entries.push(with_refusal!(context, result, outcome));
    }
    AlterClientQuotasResponse::default().with_entries(entries)
}

async fn change(
    context: &RequestContext,
    entry: &alter_client_quotas_request::EntryData,
    validate_only: bool,
) -> Result<(), Refusal> {
    let request = UserChangeRequest {
        user: user_of(entry)?.to_owned(),
        changes: entry.ops.iter().map(rate).collect::<Result<_, _>>()?,
        validate_only,
    };
    let authorizer = &context.broker.services.authorizer;
    let changed = authorizer.change_user(&context.identity, request).await;
    changed.map_err(|error| Refusal::of_user(error, Code::InvalidRequest))
}

/// The user that an entry is for, and it alone.
fn user_of(entry: &alter_client_quotas_request::EntryData) -> Result<&str, Refusal> {
    let invalid = |reason: &str| Err(Refusal::new(Code::InvalidRequest, reason));
    let [entity] = &entry.entity[..] else {
        return invalid("quotas are those of one key: name a user, and no client id or address");
    };
    match (&*entity.entity_type, entity.entity_name.as_deref()) {
        (USER, Some(user)) => Ok(user),
        (USER, None) => invalid("there is no default quota: name a user, the name of a key"),
        _ => invalid("quotas are those of keys: name a user, not a client id or an address"),
    }
}

/// The change of a rate of bytes, the ones that Kafka has a name for.
fn rate(op: &alter_client_quotas_request::OpData) -> Result<UserChange, Refusal> {
    let invalid = |reason: String| Refusal::new(Code::InvalidRequest, reason);
    let usage = match &*op.key {
        "producer_byte_rate" => Usage::BytesIn,
        "consumer_byte_rate" => Usage::BytesOut,
        other => {
            let reason = format!(
                "a key has no {other}: use producer_byte_rate or consumer_byte_rate, or set the quota of requests, connections \
                 and partitions with the key (POST /api/keys)"
            );
            return Err(invalid(reason));
        }
    };
    // Whole bytes, as in Kafka; the cast keeps those that can be told apart.
    let is_whole = op.value >= 1.0 && op.value.fract() == 0.0 && op.value < i64::MAX as f64;
    let per_second = match op.remove {
        true => None,
        false if is_whole => Some(op.value as u64),
        false => {
            let reason = format!("{} must be a positive whole number", &*op.key);
            return Err(invalid(reason));
        }
    };
    Ok(UserChange::SetRate { usage, per_second })
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

    #[test]
    fn rates_of_bytes_of_one_user_can_be_set() {
        use alter_client_quotas_request::{EntityData, EntryData, OpData};
        let op = |key: &str, value| OpData::default().with_key(text(key)).with_value(value);
        let per_second = |op: OpData| match rate(&op) {
            Ok(UserChange::SetRate { per_second, .. }) => Ok(per_second),
            _ => Err(()),
        };
        assert_eq!(per_second(op("producer_byte_rate", 10.0)), Ok(Some(10)));
        let removed = op("consumer_byte_rate", 0.0).with_remove(true);
        assert_eq!(per_second(removed), Ok(None));
        for wrong in [0.0, -1.0, 1.5, f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(per_second(op("producer_byte_rate", wrong)), Err(()));
        }
        assert_eq!(per_second(op("request_percentage", 10.0)), Err(()));
        let entity = |kind: &str, name: Option<&str>| {
            let entity = EntityData::default().with_entity_type(text(kind));
            entity.with_entity_name(name.map(text))
        };
        let user = |entities| {
            let entry = EntryData::default().with_entity(entities);
            user_of(&entry).map(str::to_owned).ok()
        };
        let own = entity("user", Some("app"));
        assert_eq!(user(vec![own.clone()]), Some("app".to_owned()));
        assert_eq!(user(vec![entity("user", None)]), None);
        assert_eq!(user(vec![entity("client-id", Some("app"))]), None);
        assert_eq!(user(vec![own, entity("client-id", Some("c"))]), None);
        assert_eq!(user(Vec::new()), None);
    }
}
