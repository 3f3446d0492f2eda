//! Tokens to expressions and statements, by recursive descent.
//!
//! The precedence, weakest first: `OR`, `AND`, `NOT`, one comparison, `+ -`, `* / %`, a sign. The length of the text
//! bounds chains of operators, and [`DEPTH_MAX`] nesting.

use super::action::Statement;
use super::error::FilterError;
use super::expression::{Comparison, Expression};
use super::lexer::{PositionedToken, Token, tokens};
use super::properties::{Property, SystemProperty};
use super::value::{Arithmetic, Value};

/// Parentheses, `NOT`s and signs within each other.
const DEPTH_MAX: usize = 32;

/// Words that cannot name a property without quotes.
const KEYWORDS: [&str; 13] = [
    "AND", "ESCAPE", "EXISTS", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "REMOVE", "SET",
    "TRUE",
];

const COMPARISONS: [(&str, Comparison); 7] = [
    ("=", Comparison::Equal),
    ("<>", Comparison::NotEqual),
    ("!=", Comparison::NotEqual),
    ("<", Comparison::Less),
    ("<=", Comparison::LessOrEqual),
    (">", Comparison::Greater),
    (">=", Comparison::GreaterOrEqual),
];

/// Parses the condition of a filter.
pub(super) fn parse_condition(text: &str) -> Result<Expression, FilterError> {
    let mut parser = Parser::new(text)?;
    let expression = parser.disjunction()?;
    parser.expect_end()?;
    Ok(expression)
}

/// Parses the statements of an action.
pub(super) fn parse_statements(text: &str) -> Result<Vec<Statement>, FilterError> {
    let mut parser = Parser::new(text)?;
    let mut statements = vec![parser.statement()?];
    while parser.take_symbol(";") || parser.take_symbol(",") {
        if *parser.peek() == Token::End {
            break;
        }
        statements.push(parser.statement()?);
    }
    parser.expect_end()?;
    Ok(statements)
}

struct Parser {
    tokens: Vec<PositionedToken>,
    at: usize,
    depth: usize,
}

type Parsed = Result<Expression, FilterError>;

impl Parser {
    fn new(text: &str) -> Result<Parser, FilterError> {
        Ok(Parser {
            tokens: tokens(text)?,
            at: 0,
            depth: 0,
        })
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn position(&self) -> usize {
        self.tokens[self.at].position
    }

    /// The next token. The end stays.
    fn take(&mut self) -> Token {
        let token = self.peek().clone();
        if token != Token::End {
            self.at += 1;
        }
        token
    }

    fn take_symbol(&mut self, symbol: &str) -> bool {
        let is_next = matches!(self.peek(), Token::Symbol(next) if *next == symbol);
        self.at += usize::from(is_next);
        is_next
    }

    fn take_keyword(&mut self, keyword: &str) -> bool {
        let is_next =
            matches!(self.peek(), Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_symbol(&mut self, symbol: &'static str) -> Result<(), FilterError> {
        match self.take_symbol(symbol) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{symbol}`"))),
        }
    }

    fn expect_keyword(&mut self, keyword: &'static str) -> Result<(), FilterError> {
        match self.take_keyword(keyword) {
            true => Ok(()),
            false => Err(self.unexpected(keyword)),
        }
    }

    fn expect_end(&self) -> Result<(), FilterError> {
        match self.peek() {
            Token::End => Ok(()),
            _ => Err(self.unexpected("the end or an operator")),
        }
    }

    fn unexpected(&self, wanted: &str) -> FilterError {
        let found = match self.peek() {
            Token::Word(word) => format!("`{word}`"),
            Token::Name(name) => format!("[{name}]"),
            Token::Text(text) => format!("'{text}'"),
            Token::Integer(number) => format!("`{number}`"),
            Token::Float(number) => format!("`{number}`"),
            Token::Symbol(symbol) => format!("`{symbol}`"),
            Token::End => "the end".into(),
        };
        FilterError::new(self.position(), format!("expected {wanted}, found {found}"))
    }

    /// Parses something that may contain itself.
    fn nested(&mut self, parse: impl FnOnce(&mut Parser) -> Parsed) -> Parsed {
        if self.depth == DEPTH_MAX {
            let message = format!("more than {DEPTH_MAX} levels are nested");
            return Err(FilterError::new(self.position(), message));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn disjunction(&mut self) -> Parsed {
        let mut left = self.conjunction()?;
        while self.take_keyword("OR") {
            left = Expression::Or(Box::new(left), Box::new(self.conjunction()?));
        }
        Ok(left)
    }

    fn conjunction(&mut self) -> Parsed {
        let mut left = self.negation()?;
        while self.take_keyword("AND") {
            left = Expression::And(Box::new(left), Box::new(self.negation()?));
        }
        Ok(left)
    }

    fn negation(&mut self) -> Parsed {
        match self.take_keyword("NOT") {
            true => {
                let operand = self.nested(Parser::negation)?;
                Ok(Expression::Not(Box::new(operand)))
            }
            false => self.comparison(),
        }
    }

    fn comparison(&mut self) -> Parsed {
        let left = Box::new(self.sum()?);
        if self.take_keyword("IS") {
            let is_negated = self.take_keyword("NOT");
            self.expect_keyword("NULL")?;
            return Ok(negate_if(is_negated, Expression::IsNull(left)));
        }
        let is_negated = self.take_keyword("NOT");
        if self.take_keyword("IN") {
            let items = self.items()?;
            return Ok(negate_if(is_negated, Expression::In(left, items)));
        }
        if self.take_keyword("LIKE") {
            let like = self.like(left)?;
            return Ok(negate_if(is_negated, like));
        }
        if is_negated {
            return Err(self.unexpected("IN or LIKE"));
        }
        for (symbol, comparison) in COMPARISONS {
            if self.take_symbol(symbol) {
                let right = Box::new(self.sum()?);
                return Ok(Expression::Compare(comparison, left, right));
            }
        }
        Ok(*left)
    }

    fn items(&mut self) -> Result<Vec<Expression>, FilterError> {
        self.expect_symbol("(")?;
        let mut items = vec![self.sum()?];
        while self.take_symbol(",") {
            items.push(self.sum()?);
        }
        self.expect_symbol(")")?;
        Ok(items)
    }

    fn like(&mut self, text: Box<Expression>) -> Parsed {
        let pattern = Box::new(self.sum()?);
        let mut escape = None;
        if self.take_keyword("ESCAPE") {
            let position = self.position();
            let Token::Text(text) = self.take() else {
                return Err(FilterError::new(position, "expected the escape character"));
            };
            let mut characters = text.chars();
            escape = characters.next().filter(|_| characters.next().is_none());
            if escape.is_none() {
                let message = "the escape must be one character";
                return Err(FilterError::new(position, message));
            }
        }
        Ok(Expression::Like {
            text,
            pattern,
            escape,
        })
    }

    fn sum(&mut self) -> Parsed {
        let operators = [("+", Arithmetic::Add), ("-", Arithmetic::Subtract)];
        self.chain(&operators, Parser::product)
    }

    fn product(&mut self) -> Parsed {
        let operators = [
            ("*", Arithmetic::Multiply),
            ("/", Arithmetic::Divide),
            ("%", Arithmetic::Remainder),
        ];
        self.chain(&operators, Parser::signed)
    }

    /// Operands joined by operators of the same precedence, from the left.
    fn chain(
        &mut self,
        operators: &[(&str, Arithmetic)],
        operand: fn(&mut Parser) -> Parsed,
    ) -> Parsed {
        let mut left = operand(self)?;
        while let Some((_, operator)) = operators
            .iter()
            .find(|(symbol, _)| self.take_symbol(symbol))
        {
            let right = Box::new(operand(self)?);
            left = Expression::Calculate(*operator, Box::new(left), right);
        }
        Ok(left)
    }

    fn signed(&mut self) -> Parsed {
        if self.take_symbol("-") {
            let operand = self.nested(Parser::signed)?;
            Ok(Expression::Negate(Box::new(operand)))
        } else if self.take_symbol("+") {
            let operand = self.nested(Parser::signed)?;
            Ok(Expression::Plus(Box::new(operand)))
        } else {
            self.primary()
        }
    }

    fn primary(&mut self) -> Parsed {
        if self.take_symbol("(") {
            let inner = self.nested(Parser::disjunction)?;
            self.expect_symbol(")")?;
            return Ok(inner);
        }
        for (keyword, value) in [
            ("TRUE", Some(Value::Bool(true))),
            ("FALSE", Some(Value::Bool(false))),
            ("NULL", None),
        ] {
            if self.take_keyword(keyword) {
                return Ok(Expression::Constant(value));
            }
        }
        if self.take_keyword("EXISTS") {
            self.expect_symbol("(")?;
            let property = self.property()?;
            self.expect_symbol(")")?;
            return Ok(Expression::Exists(property));
        }
        let value = match self.peek() {
            Token::Text(text) => Value::text(text.as_str()),
            Token::Integer(number) => Value::Integer(*number),
            Token::Float(number) => Value::Float(*number),
            _ => return self.property_or_function(),
        };
        self.take();
        Ok(Expression::Constant(Some(value)))
    }

    fn property_or_function(&mut self) -> Parsed {
        let position = self.position();
        let name = match self.peek() {
            Token::Word(word) => word.clone(),
            _ => String::new(),
        };
        let property = self.property()?;
        if !self.take_symbol("(") {
            return Ok(Expression::Property(property));
        }
        if !["property", "p"].contains(&&*name.to_ascii_lowercase()) {
            let message = format!("there is no function `{name}`; `property('name')` is one");
            return Err(FilterError::new(position, message));
        }
        let Token::Text(name) = self.peek().clone() else {
            return Err(self.unexpected("the name of a property in quotes"));
        };
        let position = self.position();
        self.take();
        self.expect_symbol(")")?;
        let (scope, name) = match name.split_once('.') {
            Some((scope @ ("sys" | "user"), name)) => (Some(scope), name.to_owned()),
            _ => (None, name),
        };
        scoped(scope, name, position).map(Expression::Property)
    }

    /// `[user.|sys.]name`
    fn property(&mut self) -> Result<Property, FilterError> {
        let position = self.position();
        let first = self.name()?;
        let is_scope = matches!(first.to_ascii_lowercase().as_str(), "sys" | "user");
        if is_scope && self.take_symbol(".") {
            let name = self.name()?;
            return scoped(Some(&first), name, position);
        }
        scoped(None, first, position)
    }

    fn name(&mut self) -> Result<String, FilterError> {
        match self.peek() {
            Token::Word(word) if KEYWORDS.iter().any(|key| key.eq_ignore_ascii_case(word)) => {
                Err(self.unexpected("a property or a constant"))
            }
            Token::Word(_) | Token::Name(_) => match self.take() {
                Token::Word(name) | Token::Name(name) => Ok(name),
                _ => Ok(String::new()),
            },
            _ => Err(self.unexpected("a property or a constant")),
        }
    }

    fn statement(&mut self) -> Result<Statement, FilterError> {
        if self.take_keyword("REMOVE") {
            return self.property().map(Statement::Remove);
        }
        if !self.take_keyword("SET") {
            return Err(self.unexpected("SET or REMOVE"));
        }
        let property = self.property()?;
        self.expect_symbol("=")?;
        Ok(Statement::Set(property, self.disjunction()?))
    }
}

fn negate_if(is_negated: bool, expression: Expression) -> Expression {
    match is_negated {
        true => Expression::Not(Box::new(expression)),
        false => expression,
    }
}

fn scoped(scope: Option<&str>, name: String, position: usize) -> Result<Property, FilterError> {
    if !scope.is_some_and(|scope| scope.eq_ignore_ascii_case("sys")) {
        return Ok(Property::User(name));
    }
    let property = SystemProperty::of_name(&name);
    property.map(Property::System).ok_or_else(|| {
        let known = SystemProperty::ALL.map(SystemProperty::name).join(", ");
        let message = format!("there is no property `sys.{name}`; these are known: {known}");
        FilterError::new(position, message)
    })
}
