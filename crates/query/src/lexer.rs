//! Splits query text into tokens.
//!
//! Accepts any text: invalid input becomes a diagnostic and lexing continues after it, so that one stray character does
//! not hide the next error. Keywords are not distinguished from names here, because almost none are reserved; the
//! parser decides by position.

use crate::Span;
use crate::diagnostic::{Diagnostic, code};

/// The longest query in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 20;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub kind: TokenKind,
    pub span: Span,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TokenKind {
    /// A bare name or a keyword.
    Word(String),
    /// `[name]`.
    Bracketed(String),
    /// `"name"`.
    Quoted(String),
    /// `'text'`.
    Text(String),
    /// May be one more than the largest bigint: the minus of the smallest bigint is a token of its own.
    Int(u64),
    Float(f64),
    Symbol(&'static str),
    End,
}

/// Longest first, so that `<=` is not read as `<`.
const SYMBOLS: [&str; 26] = [
    "<>", "!=", "<=", ">=", "!<", "!>", "(", ")", ",", ";", ".", "*", "/", "%", "+", "-", "&", "|",
    "^", "~", "=", "<", ">", "?", "{", "}",
];

pub(crate) fn lex(source: &str) -> (Vec<Token>, Vec<Diagnostic>) {
    let mut lexer = Lexer {
        source,
        at: 0,
        tokens: Vec::new(),
        errors: Vec::new(),
    };
    if source.len() > TEXT_BYTES_MAX {
        let message = format!("the query is longer than {TEXT_BYTES_MAX} bytes");
        lexer
            .errors
            .push(Diagnostic::error(code::LIMIT, Span::new(0, 0), message));
    } else {
        lexer.run();
    }
    let end = Span::new(lexer.at, lexer.at);
    lexer.tokens.push(Token {
        kind: TokenKind::End,
        span: end,
    });
    (lexer.tokens, lexer.errors)
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    tokens: Vec<Token>,
    errors: Vec<Diagnostic>,
}

impl Lexer<'_> {
    fn run(&mut self) {
        while let Some(c) = self.peek() {
            let start = self.at;
            match c {
                c if c.is_whitespace() || c == '\u{feff}' => self.bump(c),
                '-' if self.rest().starts_with("--") => self.skip_line(),
                '/' if self.rest().starts_with("/*") => self.skip_comment(),
                '\'' => self.text(start),
                'N' | 'n' if self.rest()[1..].starts_with('\'') => {
                    self.at += 1;
                    self.text(start);
                }
                '[' => self.delimited(start, ']', TokenKind::Bracketed),
                '"' => self.delimited(start, '"', quoted),
                c if is_name_start(c) => self.word(start),
                c if c.is_ascii_digit() => self.number(start),
                '.' if self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) => {
                    self.number(start);
                }
                c => self.symbol(start, c),
            }
        }
    }

    fn rest(&self) -> &str {
        &self.source[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn bump(&mut self, c: char) {
        self.at += c.len_utf8();
    }

    fn skip_while(&mut self, wanted: impl Fn(char) -> bool) {
        while let Some(c) = self.peek().filter(|c| wanted(*c)) {
            self.bump(c);
        }
    }

    fn push(&mut self, start: usize, kind: TokenKind) {
        self.tokens.push(Token {
            kind,
            span: Span::new(start, self.at),
        });
    }

    fn error(&mut self, start: usize, message: impl Into<String>) -> &mut Diagnostic {
        let span = Span::new(start, self.at);
        self.errors
            .push(Diagnostic::error(code::LEXICAL, span, message));
        let last = self.errors.len() - 1;
        &mut self.errors[last]
    }

    fn skip_line(&mut self) {
        self.skip_while(|c| c != '\n');
    }

    /// Comments nest.
    fn skip_comment(&mut self) {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(c) = self.peek() {
            if self.rest().starts_with("/*") {
                self.at += 2;
                depth += 1;
            } else if self.rest().starts_with("*/") {
                self.at += 2;
                depth -= 1;
                if depth == 0 {
                    return;
                }
            } else {
                self.bump(c);
            }
        }
        let end = std::mem::replace(&mut self.at, start + 2);
        self.error(start, "this comment is never closed").help = Some("close it with */".into());
        self.at = end;
    }

    fn word(&mut self, start: usize) {
        self.skip_while(is_name_part);
        let word = self.source[start..self.at].to_string();
        self.push(start, TokenKind::Word(word));
    }

    fn text(&mut self, start: usize) {
        match self.until('\'') {
            Some(text) => self.push(start, TokenKind::Text(text)),
            None => self.unclosed(start, "text", "'"),
        }
    }

    fn delimited(&mut self, start: usize, close: char, kind: fn(String) -> TokenKind) {
        match self.until(close) {
            Some(name) => self.push(start, kind(name)),
            None => self.unclosed(start, "name", if close == ']' { "]" } else { "\"" }),
        }
    }

    /// Everything up to `close`, which is doubled to stand for itself. Starts at the opening quote or bracket.
    fn until(&mut self, close: char) -> Option<String> {
        self.at += 1;
        let mut text = String::new();
        while let Some(c) = self.peek() {
            self.bump(c);
            if c != close {
                text.push(c);
            } else if self.peek() == Some(close) {
                self.bump(close);
                text.push(close);
            } else {
                return Some(text);
            }
        }
        None
    }

    fn unclosed(&mut self, start: usize, what: &str, close: &str) {
        let end = self.at;
        let line = self.source[start..].find('\n').map_or(end, |at| start + at);
        self.at = line;
        let error = self.error(start, format!("this {what} is never closed"));
        error.label = format!("no closing {close} follows");
        self.at = end;
    }

    fn number(&mut self, start: usize) {
        let digit = |c: char| c.is_ascii_digit();
        self.skip_while(digit);
        let mut whole = true;
        if self.peek() == Some('.') {
            whole = false;
            self.at += 1;
            self.skip_while(digit);
        }
        if self.exponent_follows() {
            whole = false;
            self.at += 2;
            self.skip_while(digit);
        }
        if self.peek().is_some_and(is_name_part) {
            self.skip_while(is_name_part);
            let error = self.error(start, "a name cannot start with a digit");
            error.help = Some("put the name in [brackets], or a blank after the number".into());
            return;
        }
        let text = &self.source[start..self.at];
        let kind = if whole {
            text.parse().ok().map(TokenKind::Int)
        } else {
            text.parse()
                .ok()
                .filter(|f: &f64| f.is_finite())
                .map(TokenKind::Float)
        };
        match kind {
            Some(kind) => self.push(start, kind),
            None => {
                let kind = if whole { "a bigint" } else { "a float" };
                self.error(start, format!("this number does not fit into {kind}"))
                    .code = code::NUMBER;
                self.push(start, TokenKind::Int(0));
            }
        }
    }

    /// The length of a `<>` with blanks inside.
    fn spaced_unequal(&self) -> Option<usize> {
        let rest = self.rest();
        let inside = rest.strip_prefix('<')?;
        let close = inside.trim_start();
        let blank = close.len() < inside.len();
        (blank && close.starts_with('>')).then(|| rest.len() - close.len() + 1)
    }

    fn exponent_follows(&self) -> bool {
        let rest = self.rest().as_bytes();
        let sign = usize::from(matches!(rest.get(1), Some(b'+' | b'-')));
        matches!(rest.first(), Some(b'e' | b'E'))
            && rest.get(1 + sign).is_some_and(u8::is_ascii_digit)
    }

    fn symbol(&mut self, start: usize, c: char) {
        if let Some(len) = self.spaced_unequal() {
            self.at += len;
            self.push(start, TokenKind::Symbol("<>"));
            return;
        }
        if let Some(symbol) = SYMBOLS.into_iter().find(|s| self.rest().starts_with(s)) {
            self.at += symbol.len();
            self.push(start, TokenKind::Symbol(symbol));
            return;
        }
        self.bump(c);
        let shown = if is_invisible(c) {
            format!("the invisible character U+{:04X}", c as u32)
        } else if c.is_control() {
            format!("U+{:04X}", c as u32)
        } else {
            format!("`{c}`")
        };
        let error = self.error(start, format!("{shown} is not allowed here"));
        error.help = match c {
            c if is_invisible(c) => Some("delete it; such characters come with copied text".into()),
            '@' => Some("there are no variables in this language".into()),
            '!' => Some("write NOT, or != for \"is not equal\"".into()),
            '#' | '$' => Some("put names with such characters in [brackets]".into()),
            '\u{2018}' | '\u{2019}' | '\u{201c}' | '\u{201d}' => {
                Some("put text in straight single quotes: 'text'".into())
            }
            _ => None,
        };
    }
}

/// `""` is the empty text: there is no column without a name.
fn quoted(name: String) -> TokenKind {
    match name.is_empty() {
        true => TokenKind::Text(name),
        false => TokenKind::Quoted(name),
    }
}

/// Characters that show nothing and are no blanks: soft hyphen, zero-width characters, marks of text direction.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
    )
}

fn is_name_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_name_part(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(source: &str) -> Vec<TokenKind> {
        let (tokens, errors) = lex(source);
        assert_eq!(errors, []);
        let mut kinds: Vec<TokenKind> = tokens.into_iter().map(|t| t.kind).collect();
        assert_eq!(kinds.pop(), Some(TokenKind::End));
        kinds
    }

    fn messages(source: &str) -> Vec<String> {
        lex(source).1.into_iter().map(|e| e.message).collect()
    }

    // proves S1
    #[test]
    fn closing_marks_are_doubled_to_stand_for_themselves() {
        let text = |s: &str| TokenKind::Text(s.into());
        assert_eq!(
            kinds("'it''s' N'x' ''"),
            [text("it's"), text("x"), text("")]
        );
        assert_eq!(kinds("[a]]b c]"), [TokenKind::Bracketed("a]b c".into())]);
        assert_eq!(
            kinds("\"[my][Field]\""),
            [TokenKind::Quoted("[my][Field]".into())]
        );
    }

    // proves S1
    #[test]
    fn numbers_are_bigint_unless_they_have_a_point_or_an_exponent() {
        use TokenKind::{Float, Int};
        assert_eq!(
            kinds("7 1.5 .5 1e3 2E-2"),
            [Int(7), Float(1.5), Float(0.5), Float(1e3), Float(0.02)]
        );
        assert_eq!(kinds("9223372036854775808"), [Int(1 << 63)]);
        assert_eq!(
            messages("99999999999999999999"),
            ["this number does not fit into a bigint"]
        );
        assert_eq!(messages("1e999"), ["this number does not fit into a float"]);
        assert_eq!(messages("1abc"), ["a name cannot start with a digit"]);
    }

    // proves S1
    #[test]
    fn comments_nest_and_vanish() {
        assert_eq!(
            kinds("-- a\n/* b /* c */ d */ x"),
            [TokenKind::Word("x".into())]
        );
    }

    // proves S1
    #[test]
    fn two_character_operators_are_one_token() {
        let symbols = kinds("<> != <= >= !< !> < = >");
        assert_eq!(symbols.len(), 9);
        assert_eq!(symbols[5], TokenKind::Symbol("!>"));
    }

    // proves S1
    #[test]
    fn blanks_may_stand_inside_the_sign_for_unequal() {
        for unequal in ["<>", "< >", "<\n\t>"] {
            assert_eq!(kinds(unequal), [TokenKind::Symbol("<>")]);
        }
        assert_eq!(kinds("< x >").len(), 3);
    }

    // proves S1
    #[test]
    fn two_double_quotes_are_the_empty_text() {
        assert_eq!(kinds("\"\""), [TokenKind::Text(String::new())]);
        assert_eq!(kinds("\"\"\"\""), [TokenKind::Quoted("\"".into())]);
    }

    // proves S1 S2
    #[test]
    fn invisible_characters_are_named_by_code_point() {
        assert_eq!(
            messages("a \u{200b}b \u{2060} c"),
            [
                "the invisible character U+200B is not allowed here",
                "the invisible character U+2060 is not allowed here"
            ]
        );
        // Where they are blanks they count as such.
        assert_eq!(kinds("\u{feff}a\u{a0}b\u{3000}c").len(), 3);
    }

    // proves S1
    #[test]
    fn what_is_left_open_is_reported_and_lexing_goes_on() {
        assert_eq!(messages("'abc"), ["this text is never closed"]);
        assert_eq!(messages("[abc"), ["this name is never closed"]);
        assert_eq!(messages("/* /* */"), ["this comment is never closed"]);
        assert_eq!(
            messages("a @ b \u{0} c"),
            ["`@` is not allowed here", "U+0000 is not allowed here"]
        );
        assert_eq!(lex("a @ b").0.len(), 3);
    }
}
