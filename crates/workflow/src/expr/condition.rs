//! Conditions: `steps.account.body == false`, `input.weight > 20 and not input.expedited`.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ExprError, Path, Scope, stored_as_text};

/// A condition over the data of an instance. A missing value is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Condition {
    source: String,
    expr: Expr,
}

#[derive(Clone, Debug, PartialEq)]
enum Expr {
    Value(Value),
    Path(Path),
    Not(Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Compare(Box<Expr>, Op, Box<Expr>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Maximum nesting of parentheses and `not`.
const DEPTH_MAX: usize = 50;

stored_as_text!(Condition);

impl Condition {
    pub fn parse(source: &str) -> Result<Condition, ExprError> {
        let mut parser = Parser {
            tokens: tokens(source)?,
            at: 0,
            depth: 0,
        };
        let expr = parser.any_of()?;
        match parser.peek() {
            None => Ok(Condition {
                source: source.to_owned(),
                expr,
            }),
            Some(token) => Err(ExprError(format!(
                "unexpected `{token}` after the condition"
            ))),
        }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn holds(&self, scope: &Scope<'_>) -> bool {
        truth(&self.expr.value(scope))
    }

    pub fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.expr.gather(&mut paths);
        paths
    }
}

impl Expr {
    fn value(&self, scope: &Scope<'_>) -> Value {
        match self {
            Expr::Value(value) => value.clone(),
            Expr::Path(path) => scope.find(path).map_or(Value::Null, |v| v.into_owned()),
            Expr::Not(of) => (!truth(&of.value(scope))).into(),
            Expr::And(a, b) => (truth(&a.value(scope)) && truth(&b.value(scope))).into(),
            Expr::Or(a, b) => (truth(&a.value(scope)) || truth(&b.value(scope))).into(),
            Expr::Compare(a, op, b) => op.holds(&a.value(scope), &b.value(scope)).into(),
        }
    }

    fn gather<'s>(&'s self, paths: &mut Vec<&'s Path>) {
        match self {
            Expr::Value(_) => {}
            Expr::Path(path) => paths.push(path),
            Expr::Not(of) => of.gather(paths),
            Expr::And(a, b) | Expr::Or(a, b) | Expr::Compare(a, _, b) => {
                a.gather(paths);
                b.gather(paths);
            }
        }
    }
}

fn truth(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

impl Op {
    fn holds(self, a: &Value, b: &Value) -> bool {
        let order = order(a, b);
        match self {
            Op::Equal => order == Some(Ordering::Equal),
            Op::NotEqual => order != Some(Ordering::Equal),
            Op::Less => order == Some(Ordering::Less),
            Op::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Op::Greater => order == Some(Ordering::Greater),
            Op::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// Numbers and strings are ordered; other values are equal or incomparable.
fn order(a: &Value, b: &Value) -> Option<Ordering> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => a.as_f64()?.partial_cmp(&b.as_f64()?),
        },
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => (a == b).then_some(Ordering::Equal),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
    Number(serde_json::Number),
    Op(Op),
    Open,
    Close,
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Token::Word(word) => f.write_str(word),
            Token::Text(text) => write!(f, "'{text}'"),
            Token::Number(number) => number.fmt(f),
            Token::Op(op) => f.write_str(op.text()),
            Token::Open => f.write_str("("),
            Token::Close => f.write_str(")"),
        }
    }
}

const OPS: [Op; 6] = [
    Op::Equal,
    Op::NotEqual,
    Op::LessOrEqual,
    Op::GreaterOrEqual,
    Op::Less,
    Op::Greater,
];

impl Op {
    fn text(self) -> &'static str {
        match self {
            Op::Equal => "==",
            Op::NotEqual => "!=",
            Op::Less => "<",
            Op::LessOrEqual => "<=",
            Op::Greater => ">",
            Op::GreaterOrEqual => ">=",
        }
    }
}

fn tokens(source: &str) -> Result<Vec<Token>, ExprError> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let op = OPS.into_iter().find(|op| rest.starts_with(op.text()));
        let (token, length) = match (op, first) {
            (Some(op), _) => (Token::Op(op), op.text().len()),
            (None, '(') => (Token::Open, 1),
            (None, ')') => (Token::Close, 1),
            (None, '\'' | '"') => {
                let end = rest[1..].find(first).ok_or_else(|| {
                    ExprError(format!("the text that begins at {rest} has no end"))
                })?;
                (Token::Text(rest[1..=end].to_owned()), end + 2)
            }
            _ => word(rest)?,
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn word(rest: &str) -> Result<(Token, usize), ExprError> {
    let ends = |c: char| c.is_whitespace() || "()=!<>'\"".contains(c);
    let length = rest.find(ends).unwrap_or(rest.len());
    let text = &rest[..length];
    if text.is_empty() {
        let hint = match rest.starts_with('=') {
            true => ": write `==` to compare",
            false => "",
        };
        return Err(ExprError(format!("`{rest}` cannot be read{hint}")));
    }
    let token = match text.parse() {
        Ok(number) if text.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            Token::Number(number)
        }
        _ => Token::Word(text.to_owned()),
    };
    Ok((token, length))
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, wanted: &Token) -> bool {
        let is_there = self.peek() == Some(wanted);
        self.at += usize::from(is_there);
        is_there
    }

    fn take_word(&mut self, word: &str) -> bool {
        self.take(&Token::Word(word.into()))
    }

    fn any_of(&mut self) -> Result<Expr, ExprError> {
        let mut expr = self.all_of()?;
        while self.take_word("or") {
            expr = Expr::Or(Box::new(expr), Box::new(self.all_of()?));
        }
        Ok(expr)
    }

    fn all_of(&mut self) -> Result<Expr, ExprError> {
        let mut expr = self.one()?;
        while self.take_word("and") {
            expr = Expr::And(Box::new(expr), Box::new(self.one()?));
        }
        Ok(expr)
    }

    fn one(&mut self) -> Result<Expr, ExprError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(ExprError("it is nested too deeply".into()));
        }
        let expr = match self.take_word("not") {
            true => Expr::Not(Box::new(self.one()?)),
            false => self.comparison()?,
        };
        self.depth -= 1;
        Ok(expr)
    }

    fn comparison(&mut self) -> Result<Expr, ExprError> {
        let left = self.operand()?;
        let Some(Token::Op(op)) = self.peek().cloned() else {
            return Ok(left);
        };
        self.at += 1;
        let right = self.operand()?;
        Ok(Expr::Compare(Box::new(left), op, Box::new(right)))
    }

    fn operand(&mut self) -> Result<Expr, ExprError> {
        let token = self.peek().cloned();
        self.at += 1;
        match token {
            Some(Token::Open) => {
                let expr = self.any_of()?;
                match self.take(&Token::Close) {
                    true => Ok(expr),
                    false => Err(ExprError("a bracket is not closed".into())),
                }
            }
            Some(Token::Text(text)) => Ok(Expr::Value(text.into())),
            Some(Token::Number(number)) => Ok(Expr::Value(Value::Number(number))),
            Some(Token::Word(word)) => match word.as_str() {
                "true" => Ok(Expr::Value(true.into())),
                "false" => Ok(Expr::Value(false.into())),
                "null" => Ok(Expr::Value(Value::Null)),
                path => Path::parse(path).map(Expr::Path),
            },
            Some(token) => Err(ExprError(format!("expected a value, found `{token}`"))),
            None => Err(ExprError("a value is missing at the end".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::scope::testing::Fixed;
    use super::*;

    fn holds(condition: &str) -> bool {
        let answers = Fixed(vec![("account", 200, "false")]);
        let input = br#"{"weight":20.5,"size":"Small","expedited":true,"none":null}"#;
        let scope = Scope::new("w", "i", input, &answers);
        Condition::parse(condition).unwrap().holds(&scope)
    }

    #[test]
    fn conditions_mean_what_they_say() {
        for condition in [
            "steps.account.body == false",
            "input.weight > 20",
            "input.weight <= 20.5",
            "input.size == 'Small'",
            "input.size != \"Large\"",
            "input.expedited",
            "not input.none",
            "input.missing == null",
            "steps.account.status == 200 and input.expedited",
            "false or (true and not false)",
            "true or true and false",
            "input.size < 'T'",
        ] {
            assert!(holds(condition), "{condition}");
        }
        for condition in [
            "steps.account.body",
            "input.weight > 'a'",
            "input.weight < 20",
            "input.size == 20",
            "not (input.expedited or false)",
            "input.missing",
        ] {
            assert!(!holds(condition), "{condition}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_with_a_reason() {
        for (condition, reason) in [
            ("", "a value is missing at the end"),
            ("input.a ==", "a value is missing at the end"),
            ("input.a = 1", "`= 1` cannot be read: write `==` to compare"),
            ("(input.a", "a bracket is not closed"),
            (
                "input.a input.b",
                "unexpected `input.b` after the condition",
            ),
            ("'x", "the text that begins at 'x has no end"),
        ] {
            assert_eq!(Condition::parse(condition).unwrap_err().0, reason);
        }
        assert!(Condition::parse(&"(".repeat(100_000)).is_err());
    }
}
