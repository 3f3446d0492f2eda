//! Rules from and to `RuleDescription`.

use highwater_queue::{
    CorrelationFilter, Filter, FilterError, Rule, SqlAction, SqlFilter, SystemProperty, TopicError,
    Value,
};
use highwater_time::Instant;

use super::xml::{Element, push_element, push_text};
use crate::http::error::Error;
use crate::text::time_text;
use highwater_log::EnqueueTime;

const PAGE: &str = "docs/servicebus.md has the filters";

/// The version of the language, which clients want to know.
const COMPATIBILITY_LEVEL: &str = "20";

/// The conditions of a correlation filter, in the order of Service Bus.
const CONDITIONS: [(&str, SystemProperty); 8] = [
    ("CorrelationId", SystemProperty::CorrelationId),
    ("MessageId", SystemProperty::MessageId),
    ("To", SystemProperty::To),
    ("ReplyTo", SystemProperty::ReplyTo),
    ("Label", SystemProperty::Label),
    ("SessionId", SystemProperty::SessionId),
    ("ReplyToSessionId", SystemProperty::ReplyToSessionId),
    ("ContentType", SystemProperty::ContentType),
];

/// The rule that a description asks for.
pub(super) fn parse(description: &Element, name: &str, created_ms: i64) -> Result<Rule, Error> {
    let rule = Rule {
        name: name.to_owned(),
        filter: match description.child("Filter") {
            Some(filter) => parse_filter(filter)?,
            None => Filter::True,
        },
        action: match description.child("Action") {
            Some(action) => parse_action(action)?,
            None => None,
        },
        created_ms,
    };
    rule.check().map_err(TopicError::from)?;
    Ok(rule)
}

fn wrong_text(error: FilterError) -> Error {
    Error::bad(error.to_string(), PAGE)
}

fn refuse_parameters(of: &Element) -> Result<(), Error> {
    match of.child("Parameters") {
        Some(parameters) if !parameters.children().is_empty() => Err(Error::bad(
            "parameters of SQL expressions are not supported",
            "write the values into the expression",
        )),
        _ => Ok(()),
    }
}

fn parse_filter(filter: &Element) -> Result<Filter, Error> {
    match filter.kind.as_deref() {
        Some("TrueFilter") => Ok(Filter::True),
        Some("FalseFilter") => Ok(Filter::False),
        Some("CorrelationFilter") => parse_correlation(filter).map(Filter::Correlation),
        Some("SqlFilter") => {
            refuse_parameters(filter)?;
            let text = filter.value("SqlExpression").unwrap_or_default();
            Ok(Filter::Sql(SqlFilter::parse(text).map_err(wrong_text)?))
        }
        other => {
            let kind: String = other.unwrap_or_default().chars().take(50).collect();
            Err(Error::bad(
                format!("there is no filter of type `{kind}`"),
                PAGE,
            ))
        }
    }
}

fn parse_action(action: &Element) -> Result<Option<SqlAction>, Error> {
    match action.kind.as_deref() {
        None | Some("EmptyRuleAction") => Ok(None),
        Some("SqlRuleAction") => {
            refuse_parameters(action)?;
            let text = action.value("SqlExpression").unwrap_or_default();
            SqlAction::parse(text).map(Some).map_err(wrong_text)
        }
        Some(other) => {
            let kind: String = other.chars().take(50).collect();
            Err(Error::bad(
                format!("there is no action of type `{kind}`"),
                PAGE,
            ))
        }
    }
}

fn parse_correlation(filter: &Element) -> Result<CorrelationFilter, Error> {
    let system = CONDITIONS.into_iter().filter_map(|(name, property)| {
        let text = filter.child(name)?.text();
        (!text.is_empty()).then(|| (property, text.to_owned()))
    });
    let mut parsed = CorrelationFilter {
        system: system.collect(),
        user: Vec::new(),
    };
    let properties = filter.child("Properties");
    for pair in properties.map(Element::children).unwrap_or_default() {
        let (Some(key), Some(value)) = (pair.child("Key"), pair.child("Value")) else {
            return Err(Error::bad(
                "a property of the filter has no Key or Value",
                PAGE,
            ));
        };
        let name = key.text().to_owned();
        let kind = value.kind.as_deref().unwrap_or("string");
        let Some(value) = parse_value(kind, value.text()) else {
            let message = format!("property `{name}` has no value of type {kind}");
            return Err(Error::bad(message, PAGE));
        };
        parsed.user.push((name, value));
    }
    Ok(parsed)
}

/// A value by its type in XML Schema.
fn parse_value(kind: &str, text: &str) -> Option<Value> {
    match kind {
        "string" => Some(Value::Text(text.to_owned())),
        "int" | "long" | "short" | "byte" | "unsignedInt" | "unsignedShort" | "unsignedByte" => {
            text.trim().parse().ok().map(Value::Integer)
        }
        "double" | "float" | "decimal" => text.trim().parse().ok().map(Value::Float),
        "boolean" => match text.trim() {
            "true" | "1" => Some(Value::Bool(true)),
            "false" | "0" => Some(Value::Bool(false)),
            _ => None,
        },
        "dateTime" => {
            let instant = Instant::parse_iso(text.trim().as_bytes())?;
            Some(Value::Time(instant.to_unix_millis()))
        }
        _ => None,
    }
}

/// Writes the description. Clients want an action, though it be empty.
pub(super) fn write(rule: &Rule, out: &mut String) {
    out.push_str(
        "<RuleDescription xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">",
    );
    match &rule.filter {
        Filter::True => write_expression(out, "Filter", "TrueFilter", "1=1"),
        Filter::False => write_expression(out, "Filter", "FalseFilter", "1=0"),
        Filter::Sql(sql) => write_expression(out, "Filter", "SqlFilter", sql.text()),
        Filter::Correlation(correlation) => write_correlation(correlation, out),
    }
    match &rule.action {
        Some(action) => write_expression(out, "Action", "SqlRuleAction", action.text()),
        None => out.push_str("<Action i:type=\"EmptyRuleAction\"/>"),
    }
    push_element(out, "CreatedAt", &time_text(EnqueueTime(rule.created_ms)));
    push_element(out, "Name", &rule.name);
    out.push_str("</RuleDescription>");
}

fn write_expression(out: &mut String, element: &str, kind: &str, text: &str) {
    out.push_str(&format!("<{element} i:type=\"{kind}\">"));
    push_element(out, "SqlExpression", text);
    push_element(out, "CompatibilityLevel", COMPATIBILITY_LEVEL);
    out.push_str(&format!("</{element}>"));
}

fn write_correlation(filter: &CorrelationFilter, out: &mut String) {
    out.push_str("<Filter i:type=\"CorrelationFilter\">");
    for (name, property) in CONDITIONS {
        if let Some((_, text)) = filter.system.iter().find(|(of, _)| *of == property) {
            push_element(out, name, text);
        }
    }
    if !filter.user.is_empty() {
        out.push_str("<Properties>");
        for (name, value) in &filter.user {
            write_property(name, value, out);
        }
        out.push_str("</Properties>");
    }
    out.push_str("</Filter>");
}

/// The JavaScript client wants a prefix of four characters, and knows no `long`.
fn write_property(name: &str, value: &Value, out: &mut String) {
    let (kind, text) = match value {
        Value::Bool(flag) => ("boolean", flag.to_string()),
        Value::Integer(number) if i32::try_from(*number).is_ok() => ("int", number.to_string()),
        Value::Integer(number) => ("long", number.to_string()),
        Value::Float(number) => ("double", number.to_string()),
        Value::Text(text) => ("string", text.clone()),
        Value::Time(at) => ("dateTime", time_text(EnqueueTime(*at))),
        // Nothing that a client sends becomes such a value in a filter.
        Value::Opaque => return,
    };
    out.push_str("<KeyValueOfstringanyType>");
    push_element(out, "Key", name);
    out.push_str(&format!(
        "<Value i:type=\"d6p1:{kind}\" xmlns:d6p1=\"http://www.w3.org/2001/XMLSchema\">"
    ));
    push_text(out, &text);
    out.push_str("</Value></KeyValueOfstringanyType>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(rule: &Rule) {
        let mut out = String::new();
        write(rule, &mut out);
        let read = Element::parse(out.as_bytes()).unwrap();
        let read = parse(&read, &rule.name, rule.created_ms).unwrap();
        assert_eq!(&read, rule, "{out}");
    }

    // proves A3
    #[test]
    fn rules_survive_a_description() {
        let correlation = CorrelationFilter {
            system: vec![
                (SystemProperty::CorrelationId, "a < b".into()),
                (SystemProperty::Label, " fruit ".into()),
            ],
            user: vec![
                ("text".into(), Value::Text("ü & \"x\"".into())),
                ("count".into(), Value::Integer(7)),
                ("large".into(), Value::Integer(1 << 40)),
                ("weight".into(), Value::Float(0.5)),
                ("is_red".into(), Value::Bool(true)),
                ("at".into(), Value::Time(1_767_225_600_000)),
            ],
        };
        let sql = SqlFilter::parse("a < 1 AND b = '<&>'").unwrap();
        let action = SqlAction::parse("SET c = 'x'").unwrap();
        for (filter, action) in [
            (Filter::True, None),
            (Filter::False, None),
            (Filter::Sql(sql), Some(action)),
            (Filter::Correlation(correlation), None),
        ] {
            let name = "r & d".to_owned();
            let created_ms = 1_767_225_600_000;
            round_trip(&Rule {
                name,
                filter,
                action,
                created_ms,
            });
        }
    }

    #[test]
    fn a_wrong_rule_is_refused_with_its_place() {
        for (inside, expected) in [
            (
                "<Filter type='SqlFilter'><SqlExpression>a = </SqlExpression></Filter>",
                "at character",
            ),
            (
                "<Filter type='OtherFilter'/>",
                "no filter of type `OtherFilter`",
            ),
            ("<Filter type='CorrelationFilter'/>", "1 to 64 conditions"),
            ("<Action type='Other'/>", "no action of type `Other`"),
            (
                "<Filter type='CorrelationFilter'><Properties><P><Key>n</Key><Value type='int'>x</Value></P></Properties></Filter>",
                "`n` has no value of type int",
            ),
        ] {
            let document = format!("<RuleDescription>{inside}</RuleDescription>");
            let element = Element::parse(document.as_bytes()).unwrap();
            let refused = parse(&element, "r", 0).unwrap_err();
            assert!(refused.message.contains(expected), "{}", refused.message);
        }
    }
}
