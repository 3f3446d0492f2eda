//! Client quotas: DescribeClientQuotas shows the rates of bytes, AlterClientQuotas sets them.
//!
//! The quota of a user is that of a key, and can be changed unless the key is in the settings. Those of client ids, of
//! users with a client id, and the defaults are beside the keys ([`ClientQuotas`](crate::client_quotas::ClientQuotas)).

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
use crate::dynamic::{QuotaName, SettingOwner, SettingUpdate, setting};
use crate::request::RequestContext;

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
/// No quota here is for an address.
const IP: &str = "ip";

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

/// The quotas of a key that Kafka has a name for. Connections, and partitions by the hour, have none.
fn values(key: &Key) -> Vec<ValueData> {
    let quota = key.limiter.quota();
    let rates = [
        (setting::CONSUMER_RATE, quota.bytes_out_per_second),
        (setting::PRODUCER_RATE, quota.bytes_in_per_second),
    ];
    let values = rates.into_iter().filter_map(|(name, rate)| {
        let value = ValueData::default().with_key(text(name));
        Some(value.with_value(rate? as f64))
    });
    values.collect()
}

/// An entity of quotas. `None`: it does not depend on users, or on client ids.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entity {
    user: Option<QuotaName>,
    client_id: Option<QuotaName>,
}

impl Entity {
    fn names(&self) -> [(&'static str, Option<&QuotaName>); 2] {
        [
            (USER, self.user.as_ref()),
            (CLIENT_ID, self.client_id.as_ref()),
        ]
    }

    fn owner(self) -> SettingOwner {
        SettingOwner::ClientQuota {
            user: self.user,
            client_id: self.client_id,
        }
    }
}

/// The filter on one entity type.
#[derive(Clone, Debug, PartialEq, Eq)]
enum NameFilter {
    Is(QuotaName),
    /// Any name, or the default.
    Any,
}

/// A filter of DescribeClientQuotas: entities have a name of each kind that it names, and with `strict` of no other.
struct Filter {
    components: Vec<(String, NameFilter)>,
    strict: bool,
}

impl Filter {
    fn parse(components: &[ComponentData], strict: bool) -> Result<Filter, Refusal> {
        let invalid = |reason: String| Err(Refusal::new(Code::InvalidRequest, reason));
        let mut parsed: Vec<(String, NameFilter)> = Vec::with_capacity(components.len());
        for component in components {
            let kind = &*component.entity_type;
            if ![USER, CLIENT_ID, IP].contains(&kind) {
                return invalid(format!("no entity is of the kind {kind}"));
            }
            if parsed.iter().any(|(known, _)| known == kind) {
                return invalid(format!("{kind} is named twice"));
            }
            let name = component._match.as_ref().map(ToString::to_string);
            let wanted = match (component.match_type, name) {
                (EXACT, Some(name)) => NameFilter::Is(QuotaName::Exact(name)),
                (DEFAULT, _) => NameFilter::Is(QuotaName::Default),
                (ANY, _) => NameFilter::Any,
                _ => return invalid(format!("no match of this kind for {kind}")),
            };
            parsed.push((kind.to_owned(), wanted));
        }
        Ok(Filter {
            components: parsed,
            strict,
        })
    }

    fn selects(&self, entity: &Entity) -> bool {
        let names = entity.names();
        let has = |(kind, wanted): &(String, NameFilter)| {
            let found = names.iter().find(|(known, _)| known == kind);
            let found = found.and_then(|(_, name)| *name);
            found.is_some_and(|name| match wanted {
                NameFilter::Any => true,
                NameFilter::Is(wanted) => wanted == name,
            })
        };
        let count = names.iter().filter(|(_, name)| name.is_some()).count();
        self.components.iter().all(has) && (!self.strict || count == self.components.len())
    }
}

fn entry(entity: &Entity, values: Vec<ValueData>) -> EntryData {
    let named = entity.names().into_iter();
    let entities = named.filter_map(|(kind, name)| {
        let name = match name? {
            QuotaName::Exact(name) => Some(text(name)),
            QuotaName::Default => None,
        };
        let entity = EntityData::default().with_entity_type(text(kind));
        Some(entity.with_entity_name(name))
    });
    EntryData::default()
        .with_entity(entities.collect())
        .with_values(values)
}

/// The quotas of keys, and of clients beside them.
fn entries(context: &RequestContext, filter: &Filter) -> Vec<EntryData> {
    let keys: Vec<Arc<Key>> = context.broker.services.authorizer.keys();
    let of_keys = keys.iter().map(|key| {
        let entity = Entity {
            user: Some(QuotaName::Exact(key.name.clone())),
            client_id: None,
        };
        (entity, values(key))
    });
    let settings = context.broker.settings();
    let of_clients = settings.iter().filter_map(|(owner, values)| match owner {
        SettingOwner::ClientQuota { user, client_id } => {
            let entity = Entity {
                user: user.clone(),
                client_id: client_id.clone(),
            };
            let values = values.iter().filter_map(|(name, rate)| {
                let value = ValueData::default().with_key(text(name));
                Some(value.with_value(rate.parse().ok()?))
            });
            Some((entity, values.collect()))
        }
        _ => None,
    });
    let all = of_keys.chain(of_clients);
    let selected = all.filter(|(entity, values)| !values.is_empty() && filter.selects(entity));
    selected
        .map(|(entity, values)| entry(&entity, values))
        .collect()
}

pub(crate) async fn describe(
    context: &RequestContext,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    let response = DescribeClientQuotasResponse::default().with_error_message(None);
    let filter = (context.allow(Resource::Node).map_err(Refusal::from))
        .and_then(|()| Filter::parse(&request.components, request.strict));
    match filter {
        Ok(filter) => response.with_entries(Some(entries(context, &filter))),
        Err(refusal) => response
            .with_error_code(context.error_code(&refusal.code))
            .with_error_message(some_text(refusal.reason))
            .with_entries(None),
    }
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
            let resource = audited(&entry);
            context.audit(
                &resource,
                outcome.as_ref().err().map(|refusal| refusal.code),
            );
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
    let entity = entity_of(entry)?;
    let rates = entry.ops.iter().map(rate).collect::<Result<Vec<_>, _>>()?;
    match entity {
        Entity {
            user: Some(QuotaName::Exact(user)),
            client_id: None,
        } => {
            let changes = rates.into_iter().map(|rate| UserChange::SetRate {
                usage: rate.usage,
                per_second: rate.per_second,
            });
            let request = UserChangeRequest {
                user,
                changes: changes.collect(),
                validate_only,
            };
            let authorizer = &context.broker.services.authorizer;
            let changed = authorizer.change_user(&context.identity, request).await;
            changed.map_err(|error| Refusal::of_user(error, Code::InvalidRequest))
        }
        _ if validate_only => Ok(()),
        entity => {
            let values = rates.into_iter().map(|rate| {
                let value = rate.per_second.map(|rate| rate.to_string());
                (rate.name.to_owned(), value)
            });
            let update = SettingUpdate {
                owner: entity.owner(),
                values: values.collect(),
                replaces: false,
            };
            Ok(context.broker.services.settings.update(update).await?)
        }
    }
}

/// The names in the audit log.
fn audited(entry: &alter_client_quotas_request::EntryData) -> String {
    let name = |entity: &alter_client_quotas_request::EntityData| {
        let name = entity.entity_name.as_deref().unwrap_or("<default>");
        match &*entity.entity_type {
            USER => name.to_owned(),
            kind => format!("{kind} {name}"),
        }
    };
    let names: Vec<String> = entry.entity.iter().map(name).collect();
    names.join(", ")
}

/// The longest name of a user or client id in a quota.
const NAME_BYTES_MAX: usize = 256;

fn entity_of(entry: &alter_client_quotas_request::EntryData) -> Result<Entity, Refusal> {
    let invalid = |reason: &str| Err(Refusal::new(Code::InvalidRequest, reason));
    let mut entity = Entity {
        user: None,
        client_id: None,
    };
    for component in &entry.entity {
        let slot = match &*component.entity_type {
            USER => &mut entity.user,
            CLIENT_ID => &mut entity.client_id,
            _ => return invalid("quotas are those of users and client ids, not of addresses"),
        };
        let name = match component.entity_name.as_deref() {
            None => QuotaName::Default,
            Some(name) if !name.is_empty() && name.len() <= NAME_BYTES_MAX => {
                QuotaName::Exact(name.to_owned())
            }
            Some(_) => return invalid("a user or client id has 1 to 256 bytes"),
        };
        if slot.replace(name).is_some() {
            return invalid("a user or client id is named twice");
        }
    }
    match entity.names().iter().all(|(_, name)| name.is_none()) {
        true => invalid("name a user or a client id, or a default of them"),
        false => Ok(entity),
    }
}

/// A change of a rate.
#[derive(Clone, Copy, Debug)]
struct Rate {
    name: &'static str,
    usage: Usage,
    /// `None`: no limit.
    per_second: Option<u64>,
}

/// The change of a rate of bytes, the ones that Kafka has a name for.
fn rate(op: &alter_client_quotas_request::OpData) -> Result<Rate, Refusal> {
    let invalid = |reason: String| Refusal::new(Code::InvalidRequest, reason);
    let (name, usage) = match &*op.key {
        setting::PRODUCER_RATE => (setting::PRODUCER_RATE, Usage::BytesIn),
        setting::CONSUMER_RATE => (setting::CONSUMER_RATE, Usage::BytesOut),
        other => {
            let reason = format!(
                "there is no quota {other}: use producer_byte_rate or consumer_byte_rate, or set the quota of requests, connections \
                 and partitions with the key (POST /api/keys)"
            );
            return Err(invalid(reason));
        }
    };
    // Whole bytes, as in Kafka; the cast keeps distinct values distinct.
    let is_whole = op.value >= 1.0 && op.value.fract() == 0.0 && op.value < i64::MAX as f64;
    let per_second = match op.remove {
        true => None,
        false if is_whole => Some(op.value as u64),
        false => {
            let reason = format!("{} must be a positive whole number", &*op.key);
            return Err(invalid(reason));
        }
    };
    Ok(Rate {
        name,
        usage,
        per_second,
    })
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

    fn named(user: Option<&str>, client_id: Option<&str>) -> Entity {
        let name = |name: &str| match name {
            "*" => QuotaName::Default,
            name => QuotaName::Exact(name.to_owned()),
        };
        Entity {
            user: user.map(name),
            client_id: client_id.map(name),
        }
    }

    // proves G5
    #[test]
    fn a_filter_selects_entities_with_the_names_that_it_names() {
        let selects = |components: &[ComponentData], strict, entity: &Entity| {
            let filter = Filter::parse(components, strict);
            filter.ok().map(|filter| filter.selects(entity))
        };
        let (user, both) = (named(Some("app"), None), named(Some("app"), Some("*")));
        let own = component("user", EXACT, Some("app"));
        let any_client = component("client-id", ANY, None);
        let default_client = component("client-id", DEFAULT, None);
        for (components, strict, entity, expected) in [
            (vec![], false, &user, true),
            (vec![], true, &user, false),
            (vec![own.clone()], true, &user, true),
            (vec![own.clone()], true, &both, false),
            (vec![own.clone()], false, &both, true),
            (vec![own.clone(), any_client.clone()], true, &both, true),
            (vec![default_client], false, &both, true),
            (vec![any_client], false, &user, false),
            (vec![component("user", DEFAULT, None)], false, &user, false),
            (
                vec![component("user", DEFAULT, None)],
                true,
                &named(Some("*"), None),
                true,
            ),
            (
                vec![component("user", EXACT, Some("x"))],
                false,
                &user,
                false,
            ),
            (vec![component("ip", ANY, None)], false, &user, false),
        ] {
            let found = selects(&components, strict, entity);
            assert_eq!(found, Some(expected), "{components:?} {strict} {entity:?}");
        }
        assert_eq!(selects(&[own.clone(), own], false, &user), None);
        assert_eq!(selects(&[component("host", ANY, None)], false, &user), None);
    }

    #[test]
    fn rates_of_bytes_of_users_and_client_ids_can_be_set() {
        use alter_client_quotas_request::{EntityData, EntryData, OpData};
        let op = |key: &str, value| OpData::default().with_key(text(key)).with_value(value);
        let per_second = |op: OpData| rate(&op).map(|rate| rate.per_second).map_err(|_| ());
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
        let parsed = |entities| {
            let entry = EntryData::default().with_entity(entities);
            entity_of(&entry).ok()
        };
        let own = entity("user", Some("app"));
        let client = entity("client-id", None);
        assert_eq!(parsed(vec![own.clone()]), Some(named(Some("app"), None)));
        assert_eq!(
            parsed(vec![entity("user", None)]),
            Some(named(Some("*"), None))
        );
        let both = named(Some("app"), Some("*"));
        assert_eq!(parsed(vec![own.clone(), client]), Some(both));
        assert_eq!(parsed(vec![own.clone(), own]), None);
        assert_eq!(parsed(vec![entity("ip", Some("10.0.0.1"))]), None);
        assert_eq!(parsed(vec![entity("client-id", Some(""))]), None);
        assert_eq!(parsed(Vec::new()), None);
    }
}
