//! REGEXMATCH: ECMAScript patterns on an engine that takes time linear in the text.
//!
//! The engine's own syntax is close to ECMAScript but not the same, so a pattern is rewritten first: `\d` and its kin
//! mean ASCII, sets have no operators, a brace that repeats nothing is a brace. What only a backtracking engine could
//! do (looking around, back references), and what is no ECMAScript, makes a pattern invalid; an invalid pattern matches
//! nothing and is no failure. Matching ignores case, `.` is any character, `^` and `$` are the ends of the text.

use std::cell::RefCell;
use std::fmt::Write;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use crate::eval::operand::Datum;

use super::cache::Cache;
use super::call::Call;
use super::text_search::position;

/// How large a compiled pattern may be; beyond, it counts as invalid.
const COMPILED_BYTES_MAX: usize = 1 << 20;

thread_local! {
    // Compiling takes as long as matching thousands of rows, and chunks of a slow stream have few of them. Caching
    // depends on the pattern alone.
    static COMPILED: RefCell<Cache<Option<Regex>>> = const { RefCell::new(Cache::new()) };
}

/// REGEXMATCH(text, pattern)
pub(super) fn regex_match(call: Call<'_, '_>) -> Datum {
    let (mut text, mut pattern) = (String::new(), String::new());
    call.strict(|row, out| {
        let (text, pattern) = (row.text(0, &mut text)?, row.text(1, &mut pattern)?);
        let found = COMPILED.with_borrow_mut(|compiled| {
            let regex = compiled.get(pattern, compile).as_ref()?;
            regex.find(text)
        });
        out.push_int(found.map_or(0, |found| position(text, found.start())));
        Ok(())
    })
}

fn compile(pattern: &str) -> Option<Regex> {
    let mut builder = RegexBuilder::new(&rewrite(pattern)?);
    builder
        .case_insensitive(true)
        .dot_matches_new_line(true)
        .size_limit(COMPILED_BYTES_MAX);
    builder.build().ok()
}

/// The pattern in the engine's syntax; `None` if it is invalid or cannot be done.
fn rewrite(pattern: &str) -> Option<String> {
    let mut rewriter = Rewriter {
        rest: pattern.chars(),
        out: String::with_capacity(pattern.len() * 2),
    };
    // Whether there is something in front that can be repeated.
    let mut repeatable = false;
    while let Some(c) = rewriter.rest.next() {
        repeatable = match c {
            '*' | '+' | '?' if repeatable => {
                rewriter.out.push(c);
                rewriter.lazy()
            }
            '*' | '+' | '?' => return None,
            '{' => match rewriter.bounds() {
                Some(_) if !repeatable => return None,
                Some(bounds) => {
                    rewriter.out.push_str(bounds);
                    rewriter.lazy()
                }
                None => rewriter.char('{'),
            },
            '\\' => rewriter.escape()?,
            '[' => rewriter.set()?,
            '(' => rewriter.group()?,
            ')' | '.' => rewriter.copy(c),
            '|' | '^' | '$' => !rewriter.copy(c),
            c => rewriter.char(c),
        };
    }
    Some(rewriter.out)
}

/// Each method answers whether what it wrote can be repeated.
struct Rewriter<'a> {
    rest: Chars<'a>,
    out: String,
}

/// A member of a character class.
enum Atom {
    Char(char),
    Class(char),
}

impl<'a> Rewriter<'a> {
    fn copy(&mut self, c: char) -> bool {
        self.out.push(c);
        true
    }

    /// Writes a literal character.
    fn char(&mut self, c: char) -> bool {
        // Writing to a String cannot fail.
        let _ = match c.is_ascii_alphanumeric() {
            true => write!(self.out, "{c}"),
            false => write!(self.out, "\\x{{{:X}}}", u32::from(c)),
        };
        true
    }

    fn lazy(&mut self) -> bool {
        if self.rest.as_str().starts_with('?') {
            self.rest.next();
            self.out.push('?');
        }
        false
    }

    /// `{2}`, `{2,}` or `{2,3}`, after its first brace. Anything else is text.
    fn bounds(&mut self) -> Option<&'a str> {
        let text = self.rest.as_str();
        let (inner, after) = text.split_once('}')?;
        let (least, most) = inner.split_once(',').unwrap_or((inner, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if least.is_empty() || !digits(least) || !digits(most) {
            return None;
        }
        self.rest = after.chars();
        self.out.push('{');
        Some(&text[..inner.len() + 1])
    }

    /// Groups that capture, that do not, and that have a name.
    fn group(&mut self) -> Option<bool> {
        let rest = self.rest.as_str();
        let known = match rest.strip_prefix("?<") {
            Some(name) => !name.starts_with(['=', '!']),
            None => rest.starts_with("?:") || !rest.starts_with('?'),
        };
        if !known {
            return None;
        }
        self.out.push('(');
        if rest.starts_with('?') {
            let head = match rest.starts_with("?:") {
                true => 2,
                false => rest.find('>')? + 1,
            };
            self.out.push_str(&rest[..head]);
            self.rest = rest[head..].chars();
        }
        Some(false)
    }

    /// An escape outside of a class.
    fn escape(&mut self) -> Option<bool> {
        match self.rest.next()? {
            c @ ('b' | 'B') => {
                // Words are ASCII as well.
                let _ = write!(self.out, "(?-u:\\{c})");
                Some(false)
            }
            c => match self.atom(c)? {
                Atom::Char(c) => Some(self.char(c)),
                Atom::Class(class) => {
                    // Ignoring case would let in the letters beyond ASCII that have an ASCII letter as other case.
                    let _ = write!(self.out, "(?-i:[{}])", class_ranges(class));
                    Some(true)
                }
            },
        }
    }

    /// A set, after its first bracket.
    fn set(&mut self) -> Option<bool> {
        let mut inner = Rewriter {
            rest: self.rest.clone(),
            out: String::new(),
        };
        let negated = inner.rest.as_str().starts_with('^');
        if negated {
            inner.rest.next();
        }
        loop {
            let low = match inner.rest.next()? {
                ']' => break,
                c => inner.set_atom(c)?,
            };
            let mut ahead = inner.rest.clone();
            let ranges = ahead.next() == Some('-') && !ahead.as_str().starts_with(']');
            match low {
                Atom::Char(low) if ranges => {
                    inner.rest = ahead;
                    let high = inner.rest.next()?;
                    inner.range(low, high)?;
                }
                low => inner.write_atom(low),
            }
        }
        self.rest = inner.rest;
        self.out.push_str(match (negated, inner.out.is_empty()) {
            // `[]` is nothing and `[^]` is anything.
            (_, true) if negated => "[\\x{0}-\\x{10FFFF}",
            (_, true) => "[^\\x{0}-\\x{10FFFF}",
            (true, false) => "[^",
            (false, false) => "[",
        });
        self.out.push_str(&inner.out);
        self.out.push(']');
        Some(true)
    }

    /// A range, after the first character of its end. Beside a class the hyphen is a character.
    fn range(&mut self, low: char, high: char) -> Option<()> {
        match self.set_atom(high)? {
            Atom::Char(high) if low <= high => {
                self.char(low);
                self.out.push('-');
                self.char(high);
            }
            Atom::Char(_) => return None,
            class => {
                self.char(low);
                self.char('-');
                self.write_atom(class);
            }
        }
        Some(())
    }

    fn set_atom(&mut self, c: char) -> Option<Atom> {
        if c != '\\' {
            return Some(Atom::Char(c));
        }
        match self.rest.next()? {
            'b' => Some(Atom::Char('\u{8}')),
            '-' => Some(Atom::Char('-')),
            c => self.atom(c),
        }
    }

    fn write_atom(&mut self, atom: Atom) {
        match atom {
            Atom::Char(c) => {
                self.char(c);
            }
            Atom::Class(class) => {
                let _ = write!(self.out, "[{}]", class_ranges(class));
            }
        }
    }

    /// The meaning of an escape, inside or outside of a class. Letters and digits without a meaning are invalid.
    fn atom(&mut self, c: char) -> Option<Atom> {
        Some(Atom::Char(match c {
            'd' | 'D' | 'w' | 'W' | 's' | 'S' => return Some(Atom::Class(c)),
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'v' => '\u{b}',
            'f' => '\u{c}',
            '0' if !self.rest.as_str().starts_with(|c: char| c.is_ascii_digit()) => '\0',
            'c' => {
                let letter = self.rest.next().filter(char::is_ascii_alphabetic)?;
                char::from(letter as u8 % 32)
            }
            'x' => char::from_u32(self.hex(2)?)?,
            'u' => self.unicode()?,
            c if c.is_ascii_alphanumeric() => return None,
            c => c,
        }))
    }

    /// `XXXX`, two of them for characters beyond, or `{X..}`.
    fn unicode(&mut self) -> Option<char> {
        if let Some(rest) = self.rest.as_str().strip_prefix('{') {
            let (code, after) = rest.split_once('}')?;
            self.rest = after.chars();
            let hex = !code.is_empty() && code.bytes().all(|byte| byte.is_ascii_hexdigit());
            return hex
                .then(|| u32::from_str_radix(code, 16).ok())
                .flatten()
                .and_then(char::from_u32);
        }
        let high = self.hex(4)?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high);
        }
        self.rest = self.rest.as_str().strip_prefix("\\u")?.chars();
        let low = self
            .hex(4)?
            .checked_sub(0xdc00)
            .filter(|low| *low < 0x400)?;
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + low)
    }

    fn hex(&mut self, digits: usize) -> Option<u32> {
        (0..digits).try_fold(0, |value, _| {
            Some(value * 16 + self.rest.next()?.to_digit(16)?)
        })
    }
}

/// The text of a class inside of brackets.
fn class_ranges(class: char) -> &'static str {
    match class {
        'd' => "0-9",
        'D' => "^0-9",
        'w' => "A-Za-z0-9_",
        'W' => "^A-Za-z0-9_",
        's' => "\\x{9}-\\x{D}\\x{20}",
        _ => "^\\x{9}-\\x{D}\\x{20}",
    }
}
