//! Requests about the rules of a subscription.

use std::sync::Arc;

use highwater_amqp::{AmqpError, Value};
use highwater_queue::{
    CorrelationFilter, Error as QueueError, Filter, Refusal, Rule, RuleError, SqlAction, SqlFilter,
    Subscription, SystemProperty, TopicError,
};

use super::{ITEMS_MAX, ManagementRequest, argument, map};
use crate::amqp::broker::Broker;
use crate::amqp::error::{ARGUMENT_ERROR, not_found};
use crate::amqp::request::Reply;
use crate::amqp::service_bus::message::{amqp_value, filter_value};
use crate::amqp::service_bus::queue_error;

/// Descriptors of the elements of a list of rules. Those of filters have a digit less.
const RULE: u64 = 0x0137_0000_0004;
const EMPTY_ACTION: u64 = 0x0137_0000_0005;
const SQL_ACTION: u64 = 0x0137_0000_0006;
const SQL_FILTER: u64 = 0x0013_7000_0006;
const TRUE_FILTER: u64 = 0x0013_7000_0007;
const FALSE_FILTER: u64 = 0x0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0013_7000_0009;

/// The version of the language, which clients want to know.
const COMPATIBILITY_LEVEL: Value<'static> = Value::I32(20);

/// The conditions of a correlation filter, in the order of a list of rules.
const CONDITIONS: [(&str, SystemProperty); 8] = [
    ("correlation-id", SystemProperty::CorrelationId),
    ("message-id", SystemProperty::MessageId),
    ("to", SystemProperty::To),
    ("reply-to", SystemProperty::ReplyTo),
    ("label", SystemProperty::Label),
    ("session-id", SystemProperty::SessionId),
    ("reply-to-session-id", SystemProperty::ReplyToSessionId),
    ("content-type", SystemProperty::ContentType),
];

pub(super) async fn add(broker: &Broker, request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let name = rule_name(request)?.to_owned();
    let description = request.field("rule-description");
    let description = description.ok_or_else(|| argument("The request has no rule."))?;
    let rule = Rule {
        filter: filter(description)?,
        action: action(description)?,
        created_ms: broker.clock.unix_millis(),
        name: name.clone(),
    };
    let added = subscription(broker, request)?.add_rule(rule).await;
    audit(broker, request, "add rule", &name, added.is_ok());
    added.map_err(|error| topic_error(request, error))?;
    Ok(Reply::ok(200, map(Vec::new())))
}

pub(super) async fn remove(
    broker: &Broker,
    request: &ManagementRequest,
) -> Result<Reply, AmqpError> {
    let name = rule_name(request)?;
    let removed = subscription(broker, request)?.remove_rule(name).await;
    audit(broker, request, "remove rule", name, removed.is_ok());
    removed.map_err(|error| topic_error(request, error))?;
    Ok(Reply::ok(200, map(Vec::new())))
}

pub(super) fn list(broker: &Broker, request: &ManagementRequest) -> Result<Reply, AmqpError> {
    let number = |name, default| {
        let number = request.number(name).unwrap_or(default);
        usize::try_from(number).unwrap_or(0)
    };
    let rules = subscription(broker, request)?.rules();
    let rules = rules.iter().skip(number("skip", 0));
    let rules = rules.take(number("top", 100).min(ITEMS_MAX));
    let rules: Vec<_> = rules
        .map(|rule| map(vec![("rule-description", described_rule(rule))]))
        .collect();
    if rules.is_empty() {
        return Ok(Reply::no_content(None));
    }
    Ok(Reply::ok(200, map(vec![("rules", Value::List(rules))])))
}

fn subscription(
    broker: &Broker,
    request: &ManagementRequest,
) -> Result<Arc<Subscription>, AmqpError> {
    let found = broker.subscription(&request.entity);
    found.ok_or_else(|| not_found(&request.entity.to_string()))
}

fn rule_name(request: &ManagementRequest) -> Result<&str, AmqpError> {
    let name = request.text("rule-name");
    name.ok_or_else(|| argument("The request does not name a rule."))
}

fn audit(broker: &Broker, request: &ManagementRequest, operation: &str, name: &str, is_ok: bool) {
    let name: String = name.chars().take(64).collect();
    let resource = format!("{}/Rules/{name}", request.entity);
    let outcome = if is_ok { "ok" } else { "failed" };
    broker.audit(&request.caller, request.from, operation, &resource, outcome);
}

fn topic_error(request: &ManagementRequest, error: TopicError) -> AmqpError {
    match error {
        // Clients know a missing rule, as any entity, by this text.
        TopicError::Queue(QueueError::Refused(Refusal::NoSuchRule(name))) => {
            not_found(&format!("{}/Rules/{name}", request.entity))
        }
        TopicError::Queue(error) => queue_error(error),
        other => AmqpError::new(ARGUMENT_ERROR, other.to_string()),
    }
}

fn expression<'a>(
    description: &'a Value<'static>,
    kind: &str,
) -> Result<Option<&'a str>, AmqpError> {
    match description.get(kind) {
        None | Some(Value::Null) => Ok(None),
        Some(of) => {
            let text = of.get("expression").and_then(Value::as_text);
            let missing = || argument(format!("'{kind}' has no expression."));
            text.map(Some).ok_or_else(missing)
        }
    }
}

fn filter(description: &Value<'static>) -> Result<Filter, AmqpError> {
    let refused = |error: RuleError| argument(error.to_string());
    if let Some(text) = expression(description, "sql-filter")? {
        let parsed = SqlFilter::parse(text).map_err(RuleError::from);
        return parsed.map(Filter::Sql).map_err(refused);
    }
    let is_given = |kind: &str| !matches!(description.get(kind), None | Some(Value::Null));
    match description.get("correlation-filter") {
        Some(conditions @ Value::Map(_)) => correlation(conditions).map(Filter::Correlation),
        _ if is_given("true-filter") => Ok(Filter::True),
        _ if is_given("false-filter") => Ok(Filter::False),
        _ => Err(argument("The rule has no filter.")),
    }
}

fn correlation(conditions: &Value<'static>) -> Result<CorrelationFilter, AmqpError> {
    let mut filter = CorrelationFilter::default();
    for (name, property) in CONDITIONS {
        match conditions.get(name) {
            None | Some(Value::Null) => {}
            Some(value) => {
                let text = value.as_text();
                let text = text.ok_or_else(|| argument(format!("'{name}' is not a text.")))?;
                filter.system.push((property, text.to_owned()));
            }
        }
    }
    if let Some(Value::Map(entries)) = conditions.get("properties") {
        for (name, value) in entries {
            let (Some(name), Some(value)) = (name.as_text(), filter_value(value)) else {
                return Err(argument("A property of the filter has no name or value."));
            };
            filter.user.push((name.to_owned(), value));
        }
    }
    Ok(filter)
}

fn action(description: &Value<'static>) -> Result<Option<SqlAction>, AmqpError> {
    let text = expression(description, "sql-rule-action")?;
    let action = text.map(SqlAction::parse).transpose();
    action.map_err(|error| argument(error.to_string()))
}

fn described(code: u64, fields: Vec<Value<'static>>) -> Value<'static> {
    Value::Described(Box::new((Value::U64(code), Value::List(fields))))
}

fn described_rule(rule: &Rule) -> Value<'static> {
    let text = |text: &str| Value::string(text.to_owned());
    let filter = match &rule.filter {
        Filter::True => described(TRUE_FILTER, vec![text("1=1"), COMPATIBILITY_LEVEL]),
        Filter::False => described(FALSE_FILTER, vec![text("1=0"), COMPATIBILITY_LEVEL]),
        Filter::Sql(sql) => described(SQL_FILTER, vec![text(sql.text()), COMPATIBILITY_LEVEL]),
        Filter::Correlation(correlation) => described_correlation(correlation),
    };
    let action = match &rule.action {
        Some(action) => described(SQL_ACTION, vec![text(action.text()), COMPATIBILITY_LEVEL]),
        None => described(EMPTY_ACTION, Vec::new()),
    };
    let created = Value::Timestamp(rule.created_ms);
    described(RULE, vec![filter, action, text(&rule.name), created])
}

fn described_correlation(filter: &CorrelationFilter) -> Value<'static> {
    let condition = |wanted: SystemProperty| {
        let mut conditions = filter.system.iter();
        let found = conditions.find(|(property, _)| *property == wanted);
        found.map_or(Value::Null, |(_, text)| Value::string(text.clone()))
    };
    let mut fields: Vec<_> = CONDITIONS
        .iter()
        .map(|(_, property)| condition(*property))
        .collect();
    let user = filter.user.iter();
    let user = user.map(|(name, value)| (Value::string(name.clone()), amqp_value(value)));
    fields.push(Value::Map(user.collect()));
    described(CORRELATION_FILTER, fields)
}
