//! Rules of a subscription as JSON: added, replaced and removed.

use highwater_queue::{
    CorrelationFilter, Filter, FilterError, Rule, SqlAction, SqlFilter, TopicError, Value,
};
use hyper::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::subscriptions::subscription;
use crate::http::dispatch::ApiRequest;
use crate::http::error::Error;
use crate::http::reply::{self, Reply};
use crate::text::percent_decode;
use crate::topics::CONDITIONS;

const EXAMPLE: &str = "{\"name\":\"red\",\"sql\":\"colour = 'red'\",\"action\":\"REMOVE colour\"}";
const PAGE: &str = "docs/servicebus.md has the rules and their limits";

/// A rule with an SQL filter, with a correlation filter, or with a filter that is the same for all messages.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleRequest {
    #[serde(default)]
    name: String,
    sql: Option<String>,
    /// Conditions by the names of the settings: `label`, `correlation_id`, .., `properties`.
    correlation: Option<Map<String, Json>>,
    /// `false` selects nothing; without any filter everything is selected.
    all: Option<bool>,
    action: Option<String>,
}

impl RuleRequest {
    pub(super) fn rule(self, created_ms: i64) -> Result<Rule, Error> {
        let rule = Rule {
            filter: filter(self.sql, self.correlation, self.all)?,
            action: match self.action {
                Some(text) => Some(SqlAction::parse(&text).map_err(wrong_text)?),
                None => None,
            },
            name: self.name,
            created_ms,
        };
        rule.check().map_err(TopicError::from)?;
        Ok(rule)
    }
}

fn wrong_text(error: FilterError) -> Error {
    Error::bad(error.to_string(), PAGE)
}

fn filter(
    sql: Option<String>,
    correlation: Option<Map<String, Json>>,
    all: Option<bool>,
) -> Result<Filter, Error> {
    match (sql, correlation, all) {
        (Some(sql), None, None) => Ok(Filter::Sql(SqlFilter::parse(&sql).map_err(wrong_text)?)),
        (None, Some(conditions), None) => conditions_of(&conditions).map(Filter::Correlation),
        (None, None, Some(false)) => Ok(Filter::False),
        (None, None, _) => Ok(Filter::True),
        _ => {
            let message = "a rule has one of `sql`, `correlation` and `all`";
            Err(Error::bad(message, "write two rules"))
        }
    }
}

fn conditions_of(conditions: &Map<String, Json>) -> Result<CorrelationFilter, Error> {
    let mut filter = CorrelationFilter::default();
    for (name, value) in conditions {
        if name == "properties" {
            let properties = value.as_object();
            let no_object = || Error::bad("`properties` is no object", PAGE);
            for (name, value) in properties.ok_or_else(no_object)? {
                filter
                    .user
                    .push((name.clone(), property_value(name, value)?));
            }
            continue;
        }
        let condition = CONDITIONS.iter().find(|(known, _)| known == name);
        let names: Vec<&str> = CONDITIONS.iter().map(|(name, _)| *name).collect();
        let unknown = || {
            let message = format!("a correlation filter has no `{name}`");
            Error::bad(
                message,
                format!("there are {} and properties", names.join(", ")),
            )
        };
        let (_, property) = condition.ok_or_else(unknown)?;
        let no_text = || Error::bad(format!("`{name}` is no text"), PAGE);
        let text = value.as_str().ok_or_else(no_text)?;
        filter.system.push((*property, text.to_owned()));
    }
    Ok(filter)
}

fn property_value(name: &str, value: &Json) -> Result<Value, Error> {
    match value {
        Json::Bool(flag) => Ok(Value::Bool(*flag)),
        Json::String(text) => Ok(Value::Text(text.clone())),
        Json::Number(number) => {
            let float = || number.as_f64().map(Value::Float);
            let value = number.as_i64().map(Value::Integer).or_else(float);
            value.ok_or_else(|| Error::bad(format!("`{name}` is no number"), PAGE))
        }
        _ => {
            let message = format!("`{name}` is neither text, number nor boolean");
            Err(Error::bad(message, PAGE))
        }
    }
}

pub(in crate::http) async fn add(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let wanted: RuleRequest = request.read_json(EXAMPLE).await?;
    let rule = wanted.rule(request.app.clock.unix_millis())?;
    let [topic, name] = request.variables();
    let subscription = subscription(request.app, topic, name)?;
    let rule_json = rule_json(&rule);
    subscription.add_rule(rule).await?;
    Ok(reply::json(StatusCode::CREATED, &rule_json))
}

/// Replaces a rule.
pub(in crate::http) async fn change(mut request: ApiRequest<'_>) -> Result<Reply, Error> {
    let mut wanted: RuleRequest = request.read_json(EXAMPLE).await?;
    let [topic, name, rule] = request.variables();
    let rule = percent_decode(rule);
    if !wanted.name.is_empty() && wanted.name != rule {
        let hint = "leave the name out, or add a new rule";
        return Err(Error::bad("a rule keeps its name", hint));
    }
    wanted.name = rule.into_owned();
    let rule = wanted.rule(request.app.clock.unix_millis())?;
    let rule_json = rule_json(&rule);
    let subscription = subscription(request.app, topic, name)?;
    subscription.change_rule(rule).await?;
    Ok(reply::ok(&rule_json))
}

pub(in crate::http) async fn remove(request: ApiRequest<'_>) -> Result<Reply, Error> {
    let [topic, name, rule] = request.variables();
    let rule = percent_decode(rule);
    subscription(request.app, topic, name)?
        .remove_rule(&rule)
        .await?;
    Ok(reply::empty(StatusCode::NO_CONTENT))
}

pub(super) fn rule_json(rule: &Rule) -> Json {
    let (kind, sql, correlation) = match &rule.filter {
        Filter::True => ("true", None, None),
        Filter::False => ("false", None, None),
        Filter::Sql(sql) => ("sql", Some(sql.text()), None),
        Filter::Correlation(filter) => ("correlation", None, Some(correlation_facts(filter))),
    };
    let action = rule.action.as_ref().map(|action| action.text());
    json!({
        "name": rule.name, "filter": kind, "sql": sql, "correlation": correlation, "action": action,
    })
}

fn correlation_facts(filter: &CorrelationFilter) -> Json {
    let mut rule_json = Map::new();
    for (name, property) in CONDITIONS {
        if let Some((_, text)) = filter.system.iter().find(|(of, _)| of == property) {
            rule_json.insert((*name).to_owned(), text.as_str().into());
        }
    }
    let value = |value: &Value| match value {
        Value::Bool(flag) => json!(flag),
        Value::Integer(number) | Value::Time(number) => json!(number),
        Value::Float(number) => json!(number),
        Value::Text(text) => json!(text),
        Value::Opaque => Json::Null,
    };
    let user = filter.user.iter();
    let user: Map<String, Json> = user.map(|(name, of)| (name.clone(), value(of))).collect();
    if !user.is_empty() {
        rule_json.insert("properties".into(), user.into());
    }
    rule_json.into()
}
