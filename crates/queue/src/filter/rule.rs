//! Rules of a subscription: which messages it receives, and how often.

use super::action::{PropertyChange, SqlAction};
use super::error::FilterError;
use super::expression::Expression;
use super::parser::parse_condition;
use super::properties::{MessageProperties, Property, SystemProperty};
use super::value::Value;

/// The rule of a subscription that is created without one. It selects every message.
pub const DEFAULT_RULE: &str = "$Default";

/// The property that names the rule whose action has made a copy.
const RULE_NAME: &str = "RuleName";

const NAME_BYTES_MAX: usize = 50;
const CONDITIONS_MAX: usize = 64;
const CONDITION_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub name: String,
    pub filter: Filter,
    pub action: Option<SqlAction>,
    /// In milliseconds since 1970.
    pub created_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    True,
    False,
    Sql(SqlFilter),
    Correlation(CorrelationFilter),
}

/// A condition in SQL, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlFilter {
    text: String,
    condition: Expression,
}

/// Selects messages that have all these values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CorrelationFilter {
    pub system: Vec<(SystemProperty, String)>,
    pub user: Vec<(String, Value)>,
}

/// Why a rule is refused, apart from the text of an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    #[error("`{0}` cannot name a rule: use 1 to 50 bytes without `/`")]
    Name(String),
    #[error(
        "a correlation filter has 1 to 64 conditions, and their names and texts 1024 bytes at most"
    )]
    Conditions,
    #[error(transparent)]
    Expression(#[from] FilterError),
}

impl SqlFilter {
    pub fn parse(text: &str) -> Result<SqlFilter, FilterError> {
        let text = text.to_owned();
        let condition = parse_condition(&text)?;
        Ok(SqlFilter { text, condition })
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl CorrelationFilter {
    fn check(&self) -> Result<(), RuleError> {
        let count = self.system.len() + self.user.len();
        let system = self.system.iter().map(|(_, text)| text.len());
        let user = self.user.iter().map(|(name, value)| match value {
            Value::Text(text) => name.len().max(text.len()),
            _ => name.len(),
        });
        let fits = system.chain(user).all(|bytes| bytes <= CONDITION_BYTES_MAX);
        match (1..=CONDITIONS_MAX).contains(&count) && fits {
            true => Ok(()),
            false => Err(RuleError::Conditions),
        }
    }

    fn matches(&self, message: &MessageProperties) -> bool {
        let has_text = |(property, text): &(SystemProperty, String)| {
            message.system(*property) == Some(text.as_str())
        };
        let has_value = |(name, wanted): &(String, Value)| {
            let value = message.user(name);
            value.and_then(|value| value.equals(wanted)) == Some(true)
        };
        self.system.iter().all(has_text) && self.user.iter().all(has_value)
    }
}

impl Filter {
    fn matches(&self, message: &MessageProperties) -> bool {
        match self {
            Filter::True => true,
            Filter::False => false,
            Filter::Sql(sql) => sql.condition.selects(message),
            Filter::Correlation(correlation) => correlation.matches(message),
        }
    }
}

/// A copy of a message for a subscription: the changes of an action.
pub(super) type MatchedCopy = Vec<PropertyChange>;

impl Rule {
    /// The rule that selects everything.
    pub fn everything(created_ms: i64) -> Rule {
        Rule {
            name: DEFAULT_RULE.to_owned(),
            filter: Filter::True,
            action: None,
            created_ms,
        }
    }

    pub fn check(&self) -> Result<(), RuleError> {
        let name = &self.name;
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('/') {
            let shown = name.chars().take(NAME_BYTES_MAX).collect();
            return Err(RuleError::Name(shown));
        }
        match &self.filter {
            Filter::Correlation(correlation) => correlation.check(),
            Filter::True | Filter::False | Filter::Sql(_) => Ok(()),
        }
    }

    /// Whether the properties of a message make no difference.
    pub(crate) fn ignores_properties(&self) -> bool {
        let is_constant = matches!(self.filter, Filter::True | Filter::False);
        is_constant && self.action.is_none()
    }

    /// The copies that rules make of a message: one if any rule without an action selects it, and one for each rule
    /// with an action that does.
    pub(crate) fn copies<'a>(
        rules: impl Iterator<Item = &'a Rule> + Clone,
        message: &MessageProperties,
    ) -> Vec<MatchedCopy> {
        let mut plain = rules.clone().filter(|rule| rule.action.is_none());
        let mut copies = Vec::new();
        if plain.any(|rule| rule.filter.matches(message)) {
            copies.push(Vec::new());
        }
        for rule in rules {
            let Some(action) = &rule.action else {
                continue;
            };
            if rule.filter.matches(message) {
                let mut changes = action.run(&mut message.clone());
                changes.push(PropertyChange {
                    property: Property::User(RULE_NAME.to_owned()),
                    value: Some(Value::text(rule.name.as_str())),
                });
                copies.push(changes);
            }
        }
        copies
    }
}
