//! An error or warning about a query: message, position, and fix.
//!
//! A diagnostic is a value: the binder makes it, and the command line, the console and the tests each display it.
//! [`Diagnostic::render`] is for terminals, in the style of rustc. It never panics: a span outside of the text is moved
//! to the nearest position inside.

use std::fmt::Write;

use crate::Span;

/// Longer lines are cut around the caret.
const LINE_CHARS_MAX: usize = 160;
const TAB: &str = "    ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Error,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    pub severity: Severity,
    /// Stable across versions; see [`code`].
    pub code: &'static str,
    pub message: String,
    pub span: Span,
    /// A note at the caret; may be empty.
    pub label: String,
    pub help: Option<String>,
}

/// The stable codes, by what the user has to change.
pub mod code {
    /// The text cannot be split into tokens: a stray character, an unclosed quote or comment.
    pub const LEXICAL: &str = "HW1001";
    /// The tokens do not form a query.
    pub const SYNTAX: &str = "HW1002";
    /// Too long, too deep or too many.
    pub const LIMIT: &str = "HW1003";
    /// A number that no bigint or float can hold.
    pub const NUMBER: &str = "HW1004";
    /// Part of other SQL dialects, but not of this language.
    pub const FOREIGN: &str = "HW1101";
    pub const UNKNOWN_INPUT: &str = "HW1201";
    pub const UNKNOWN_OUTPUT: &str = "HW1202";
    pub const UNKNOWN_COLUMN: &str = "HW1203";
    pub const UNKNOWN_FUNCTION: &str = "HW1204";
    pub const UNKNOWN_TYPE: &str = "HW1205";
    pub const DUPLICATE_STEP: &str = "HW1206";
    /// A step that nothing reads.
    pub const UNUSED_STEP: &str = "HW1207";
    /// A select alias used before the select list exists.
    pub const ALIAS: &str = "HW1208";
    /// INTO where no output can be named.
    pub const INTO: &str = "HW1301";
    /// Two columns of one name.
    pub const DUPLICATE_COLUMN: &str = "HW1302";
    pub const STAR: &str = "HW1303";
    pub const UNION: &str = "HW1304";
    /// CREATE TABLE.
    pub const TABLE: &str = "HW1305";
    /// A condition where a value belongs, or the other way round.
    pub const BOOLEAN: &str = "HW1401";
    pub const CASE: &str = "HW1402";
    /// Wrong number or kind of arguments.
    pub const ARGUMENTS: &str = "HW1403";
    /// TIMESTAMP BY and its OVER.
    pub const TIMESTAMP: &str = "HW1501";
    pub const PARTITION: &str = "HW1502";
    /// A window is missing, repeated or misplaced.
    pub const WINDOW: &str = "HW1503";
    /// A window's size, hop, offset or limit.
    pub const SIZE: &str = "HW1504";
    /// A column that is neither grouped nor aggregated.
    pub const UNGROUPED: &str = "HW1505";
    /// An aggregate where none is allowed.
    pub const AGGREGATE: &str = "HW1506";
    pub const JOIN: &str = "HW1507";
    pub const REFERENCE: &str = "HW1508";
    /// Analytic functions and their OVER.
    pub const ANALYTIC: &str = "HW1509";
    /// MATCH_RECOGNIZE.
    pub const PATTERN: &str = "HW1510";
}

impl Diagnostic {
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        let (message, label) = (message.into(), String::new());
        Diagnostic {
            severity: Severity::Error,
            code,
            message,
            span,
            label,
            help: None,
        }
    }

    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::error(code, span, message)
        }
    }

    pub fn label(mut self, label: impl Into<String>) -> Diagnostic {
        self.label = label.into();
        self
    }

    pub fn help(mut self, help: impl Into<String>) -> Diagnostic {
        self.help = Some(help.into());
        self
    }

    pub(crate) fn help_if(mut self, help: Option<String>) -> Diagnostic {
        self.help = help.or(self.help);
        self
    }

    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Where it is in the query.
    pub fn position(&self, source: &str) -> TextPosition {
        TextPosition::of(source, self.span)
    }

    /// The diagnostic as text, with its line; `name` stands for the query.
    pub fn render(&self, source: &str, name: &str) -> String {
        let position = LinePosition::of(source, self.span);
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let number = position.line.to_string();
        let gutter = " ".repeat(number.len());
        let (text, before, width) = position.excerpt();
        let mut out = format!("{severity}[{}]: {}\n", self.code, self.message);
        let _ = writeln!(out, "{gutter}--> {name}:{number}:{}", position.column);
        let _ = writeln!(out, "{gutter} |");
        let _ = writeln!(out, "{}", format!("{number} | {text}").trim_end());
        let carets = format!("{}{}", " ".repeat(before), "^".repeat(width));
        let _ = writeln!(
            out,
            "{}",
            format!("{gutter} | {carets} {}", self.label).trim_end()
        );
        if let Some(help) = &self.help {
            let _ = writeln!(out, "{gutter} = help: {help}");
        }
        out
    }
}

/// The position of a span, for editors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextPosition {
    /// Counted from 1.
    pub line: usize,
    /// Counted in characters from 1.
    pub column: usize,
    /// Characters on that line; at least 1.
    pub length: usize,
}

impl TextPosition {
    pub fn of(source: &str, span: Span) -> TextPosition {
        let position = LinePosition::of(source, span);
        TextPosition {
            line: position.line,
            column: position.column,
            length: position.chars,
        }
    }
}

/// The line of a span, and the characters that the span covers.
struct LinePosition<'a> {
    line: usize,
    /// Counted in characters from 1.
    column: usize,
    text: &'a str,
    chars: usize,
}

impl LinePosition<'_> {
    fn of(source: &str, span: Span) -> LinePosition<'_> {
        let start = floor_boundary(source, span.start as usize);
        let end = floor_boundary(source, span.end as usize).max(start);
        let line_start = source[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = source[start..]
            .find('\n')
            .map_or(source.len(), |at| start + at);
        let end = end.min(line_end);
        let text = source[line_start..line_end].trim_end_matches('\r');
        LinePosition {
            line: source[..line_start].matches('\n').count() + 1,
            column: source[line_start..start].chars().count() + 1,
            text,
            chars: source[start..end].trim_end().chars().count().max(1),
        }
    }

    /// The line as displayed, the columns before the caret, and the number of carets.
    fn excerpt(&self) -> (String, usize, usize) {
        let chars: Vec<char> = self.text.chars().collect();
        let at = (self.column - 1).min(chars.len());
        let (from, to) = if chars.len() <= LINE_CHARS_MAX {
            (0, chars.len())
        } else {
            let from = at
                .saturating_sub(LINE_CHARS_MAX / 3)
                .min(chars.len() - LINE_CHARS_MAX);
            (from, from + LINE_CHARS_MAX)
        };
        let marked = (at + self.chars).min(to.max(at + 1));
        let left = if from > 0 { "..." } else { "" };
        let right = if to < chars.len() { "..." } else { "" };
        let text = format!("{left}{}{right}", show(&chars[from..to]));
        let before = left.len() + show(&chars[from..at]).chars().count();
        let covered = show(&chars[at..marked.min(chars.len())]).chars().count();
        (text, before, covered.max(1))
    }
}

/// Replaces tabs by blanks and control characters by visible ones, so that carets line up.
fn show(chars: &[char]) -> String {
    let mut out = String::new();
    for &c in chars {
        match c {
            '\t' => out.push_str(TAB),
            c if c.is_control() => out.push(char::REPLACEMENT_CHARACTER),
            c => out.push(c),
        }
    }
    out
}

fn floor_boundary(source: &str, mut at: usize) -> usize {
    at = at.min(source.len());
    while !source.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn at(source: &str, what: &str) -> Diagnostic {
        let start = source.find(what).unwrap_or(source.len());
        Diagnostic::error(
            code::SYNTAX,
            Span::new(start, start + what.len()),
            "something is off",
        )
        .label("here")
        .help("do it otherwise")
    }

    // proves S1
    #[test]
    fn an_error_shows_its_line_with_carets_under_the_span() {
        let source = "SELECT a\n\tFROM  wrong\r\nWHERE x";
        let shown = at(source, "wrong").render(source, "query.saql");
        expect![[r#"
            error[HW1002]: something is off
             --> query.saql:2:8
              |
            2 |     FROM  wrong
              |           ^^^^^ here
              = help: do it otherwise
        "#]]
        .assert_eq(&shown);
    }

    // proves S1
    #[test]
    fn a_span_over_lines_underlines_the_first_and_columns_count_characters() {
        let source = "SELECT 'äöü', CASE\n END";
        let shown = at(source, "CASE\n END").render(source, "q");
        assert!(shown.contains("q:1:15\n"), "{shown}");
        assert!(shown.contains("^^^^ here"), "{shown}");
        assert!(!shown.contains("^^^^^"), "{shown}");
    }

    // proves S1
    #[test]
    fn a_long_line_is_cut_around_the_caret() {
        let source = format!("{}BAD{}", "a, ".repeat(200), ", b".repeat(200));
        let shown = at(&source, "BAD").render(&source, "q");
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[3].len() < 180 && lines[3].starts_with("1 | ..."),
            "{shown}"
        );
        let caret = lines[4].find('^').unwrap_or(0);
        assert_eq!(&lines[3][caret..caret + 3], "BAD");
    }

    #[test]
    fn a_span_outside_the_text_does_not_panic() {
        for (start, end) in [(0, 0), (1, 2), (7, 900), (900, 901), (5, 2)] {
            let d = Diagnostic::error(code::SYNTAX, Span { start, end }, "m");
            assert!(d.render("äöü\u{0}\n", "q").contains("-->"));
            assert!(d.render("", "q").contains("-->"));
        }
    }
}
