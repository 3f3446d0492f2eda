//! Text to tokens, each with its position.

use super::EXPRESSION_CHARS_MAX;
use super::error::FilterError;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    /// A keyword, or a name without quotes.
    Word(String),
    /// A name in brackets or double quotes.
    Name(String),
    Text(String),
    Integer(i64),
    Float(f64),
    /// An operator or punctuation.
    Symbol(&'static str),
    End,
}

/// A token, and the character that it begins at, counted from 1.
#[derive(Clone, Debug)]
pub(super) struct PositionedToken {
    pub(super) token: Token,
    pub(super) position: usize,
}

/// Longer ones first.
const SYMBOLS: [&str; 17] = [
    "<>", "!=", "<=", ">=", "=", "<", ">", "(", ")", ",", ".", ";", "+", "-", "*", "/", "%",
];

/// The tokens of a text; the last one is the end.
pub(super) fn tokens(text: &str) -> Result<Vec<PositionedToken>, FilterError> {
    let characters: Vec<char> = text.chars().take(EXPRESSION_CHARS_MAX + 1).collect();
    if characters.len() > EXPRESSION_CHARS_MAX {
        let message = format!("the expression has more than {EXPRESSION_CHARS_MAX} characters");
        return Err(FilterError::new(EXPRESSION_CHARS_MAX + 1, message));
    }
    let mut lexer = Lexer { characters, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_space();
        let position = lexer.at + 1;
        let token = lexer.next(position)?;
        let is_end = token == Token::End;
        tokens.push(PositionedToken { token, position });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer {
    characters: Vec<char>,
    at: usize,
}

impl Lexer {
    fn peek(&self) -> Option<char> {
        self.characters.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.take_while(char::is_whitespace);
    }

    fn take_while(&mut self, is_wanted: impl Fn(char) -> bool) -> String {
        let begin = self.at;
        while self.peek().is_some_and(&is_wanted) {
            self.at += 1;
        }
        self.characters[begin..self.at].iter().collect()
    }

    fn next(&mut self, position: usize) -> Result<Token, FilterError> {
        let Some(character) = self.peek() else {
            return Ok(Token::End);
        };
        match character {
            '\'' => self.quoted('\'', position).map(Token::Text),
            '"' => self.quoted('"', position).map(Token::Name),
            '[' => self.quoted(']', position).map(Token::Name),
            _ if character.is_ascii_digit() => self.number(position),
            _ if character.is_alphabetic() || character == '_' => {
                let word = self.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '$'));
                Ok(Token::Word(word))
            }
            '@' => Err(FilterError::new(position, "parameters are not supported")),
            _ => self.symbol(position),
        }
    }

    /// A text up to the quote `end`, which stands for itself when it is written twice.
    fn quoted(&mut self, end: char, position: usize) -> Result<String, FilterError> {
        let mut text = String::new();
        self.at += 1;
        while let Some(character) = self.peek() {
            self.at += 1;
            match character == end {
                true if self.peek() == Some(end) => self.at += 1,
                true => return Ok(text),
                false => {}
            }
            text.push(character);
        }
        Err(FilterError::new(position, "a quote is not closed"))
    }

    fn number(&mut self, position: usize) -> Result<Token, FilterError> {
        let mut digits = self.take_while(|c| c.is_ascii_digit());
        let mut is_float = false;
        if self.peek() == Some('.') {
            is_float = true;
            self.at += 1;
            digits.push('.');
            digits += &self.take_while(|c| c.is_ascii_digit());
        }
        if matches!(self.peek(), Some('e' | 'E')) {
            is_float = true;
            self.at += 1;
            digits.push('e');
            if let Some(sign @ ('+' | '-')) = self.peek() {
                self.at += 1;
                digits.push(sign);
            }
            digits += &self.take_while(|c| c.is_ascii_digit());
        }
        let token = match is_float {
            true => digits.parse().ok().map(Token::Float),
            false => digits.parse().ok().map(Token::Integer),
        };
        token.ok_or_else(|| FilterError::new(position, format!("`{digits}` is no number")))
    }

    fn symbol(&mut self, position: usize) -> Result<Token, FilterError> {
        let rest = &self.characters[self.at..];
        let is_next = |symbol: &&&str| {
            let mut rest = rest.iter();
            symbol.chars().all(|wanted| rest.next() == Some(&wanted))
        };
        let Some(symbol) = SYMBOLS.iter().find(is_next) else {
            let message = format!("`{}` is not expected", rest[0]);
            return Err(FilterError::new(position, message));
        };
        self.at += symbol.len();
        Ok(Token::Symbol(symbol))
    }
}
