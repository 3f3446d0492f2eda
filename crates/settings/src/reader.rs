//! Reads typed values out of spanned TOML and notes every mistake.
//!
//! Each method answers `None` both for a missing key and for a wrong value; the second has been noted, and a file with
//! mistakes never becomes a value. So callers fall back on the default without asking why.

use std::ops::Range;
use std::path::PathBuf;

use highwater_time::Duration;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::did_you_mean;
use crate::error::{FileError, Mistake};

const DURATION_FORMS: &str =
    "a duration is \"150ms\", \"5s\", \"3m\", \"1h30m\", \"2d\" or the like";

/// Reads a file's text; `file` is the name that mistakes are reported under. An error has every mistake that `read`
/// noted.
pub fn read_file<T>(
    source: &str,
    file: &str,
    read: impl for<'a> FnOnce(&mut FileReader<'a>, &Section<'a>) -> Option<T>,
) -> Result<T, FileError> {
    let (document, syntax) = DeTable::parse_recoverable(source);
    let mut reader = FileReader::new(source, file);
    if !syntax.is_empty() {
        syntax.iter().for_each(|error| reader.syntax(error));
        return Err(reader.into_error());
    }
    match read(&mut reader, &Section::top(document.get_ref())) {
        Some(value) if reader.is_clean() => Ok(value),
        _ => Err(reader.into_error()),
    }
}

/// A table of the file and how the user reached it.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    keys: Vec<&'a str>,
    header: Range<usize>,
    /// An element of a list of tables, `[[steps]]`.
    is_element: bool,
}

/// A key with its value.
#[derive(Debug)]
pub struct Entry<'a> {
    key: &'a Spanned<DeString<'a>>,
    value: &'a Spanned<DeValue<'a>>,
    path: String,
}

impl<'a> Section<'a> {
    fn top(table: &'a DeTable<'a>) -> Section<'a> {
        Section {
            table,
            keys: Vec::new(),
            header: 0..0,
            is_element: false,
        }
    }

    /// The last part of its name: `Entry` of `[inputs.Entry]`.
    pub fn leaf(&self) -> &'a str {
        self.keys.last().copied().unwrap_or_default()
    }

    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub fn entries(&self) -> impl Iterator<Item = Entry<'a>> {
        let keys = self.table.keys();
        keys.filter_map(|key| self.entry(key.get_ref()))
    }

    pub fn entry(&self, key: &str) -> Option<Entry<'a>> {
        let (key, value) = self.table.iter().find(|(k, _)| k.get_ref() == key)?;
        Some(Entry {
            key,
            value,
            path: self.path(key.get_ref()),
        })
    }

    pub fn path(&self, key: &str) -> String {
        self.keys
            .iter()
            .copied()
            .chain([key])
            .collect::<Vec<_>>()
            .join(".")
    }

    /// ` in [time]`, or nothing at the top of the file.
    fn suffix(&self) -> String {
        match self.keys.is_empty() {
            true => String::new(),
            false => format!(" in {}", self.title()),
        }
    }

    /// `[time]` or `[[steps]]`, as the user writes it.
    pub fn title(&self) -> String {
        let keys = self.keys.join(".");
        match self.is_element {
            true => format!("[[{keys}]]"),
            false => format!("[{keys}]"),
        }
    }

    /// Where the table begins, for mistakes about the whole of it.
    pub fn span(&self) -> Range<usize> {
        self.header.clone()
    }

    fn child(&self, entry: &Entry<'a>, table: &'a DeTable<'a>) -> Section<'a> {
        let mut keys = self.keys.clone();
        keys.push(entry.key.get_ref());
        Section {
            table,
            keys,
            header: entry.key_span(),
            is_element: false,
        }
    }
}

impl<'a> Entry<'a> {
    pub fn value(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    pub fn name(&self) -> &'a str {
        self.key.get_ref()
    }

    pub fn key_span(&self) -> Range<usize> {
        self.key.span()
    }

    /// The value with its span.
    pub fn spanned(&self) -> &'a Spanned<DeValue<'a>> {
        self.value
    }

    /// The key with its tables.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The source with the mistakes found in it so far.
#[derive(Debug)]
pub struct FileReader<'a> {
    source: &'a str,
    file: &'a str,
    mistakes: Vec<Mistake>,
}

impl<'a> FileReader<'a> {
    fn new(source: &'a str, file: &'a str) -> FileReader<'a> {
        FileReader {
            source,
            file,
            mistakes: Vec::new(),
        }
    }

    pub fn is_clean(&self) -> bool {
        self.mistakes.is_empty()
    }

    fn into_error(mut self) -> FileError {
        assert!(
            !self.mistakes.is_empty(),
            "a file without mistakes has a value"
        );
        self.mistakes.sort_by_key(|mistake| mistake.position);
        FileError {
            file: self.file.to_owned(),
            mistakes: self.mistakes,
        }
    }

    /// Keys outside `known`, each with its nearest known neighbour.
    pub fn known_keys(&mut self, section: &Section, known: &[&str]) {
        let unknown = section
            .table
            .keys()
            .filter(|key| !known.contains(&key.get_ref().as_ref()));
        for key in unknown {
            let name = key.get_ref();
            let message = format!("unknown key \"{name}\"{}", section.suffix());
            let label = did_you_mean(name, known).unwrap_or_else(|| "not a key here".to_owned());
            let mistake = self.mistake(key.span(), &message, &section.path(name), &label);
            mistake
                .notes
                .push(format!("known keys: {}", known.join(", ")));
        }
    }

    /// A text that is not empty.
    pub fn text(&mut self, section: &Section, key: &str, example: &str) -> Option<String> {
        let (text, _) = self.text_entry(section, key, example)?;
        Some(text.to_owned())
    }

    /// A text whose absence is a mistake.
    pub fn required_text(&mut self, section: &Section, key: &str, example: &str) -> Option<String> {
        if !section.has(key) {
            self.missing(section, key, &format!("{key} = \"{example}\""));
        }
        self.text(section, key, example)
    }

    /// A table of texts.
    pub fn pairs(&mut self, section: &Section, key: &str, example: &str) -> Vec<(String, String)> {
        let Some(table) = self.section(section, key) else {
            return Vec::new();
        };
        let mut pairs = Vec::new();
        for entry in table.entries() {
            match entry.value() {
                DeValue::String(text) => pairs.push((entry.name().to_owned(), text.to_string())),
                _ => self.wrong_type(&entry, "a string", example),
            }
        }
        pairs
    }

    /// The same with its entry, for callers that parse the text and may find mistakes there.
    pub fn text_entry<'t>(
        &mut self,
        section: &Section<'t>,
        key: &str,
        example: &str,
    ) -> Option<(&'t str, Entry<'t>)> {
        let entry = section.entry(key)?;
        let example = format!("{key} = \"{example}\"");
        match entry.value() {
            DeValue::String(text) if text.trim().is_empty() => {
                self.empty(&entry, entry.value.span(), &example);
                None
            }
            DeValue::String(text) => Some((text.as_ref(), entry)),
            _ => {
                self.wrong_type(&entry, "a string", &example);
                None
            }
        }
    }

    pub fn path(&mut self, section: &Section, key: &str, example: &str) -> Option<PathBuf> {
        self.text(section, key, example).map(PathBuf::from)
    }

    /// One path or a list of them.
    pub fn paths(&mut self, section: &Section, key: &str, example: &str) -> Option<Vec<PathBuf>> {
        let paths = self.list(section, key, example, "a path or a list of paths")?;
        Some(paths.into_iter().map(PathBuf::from).collect())
    }

    /// One text or a list of them.
    pub fn texts(&mut self, section: &Section, key: &str, example: &str) -> Option<Vec<String>> {
        self.list(section, key, example, "a name or a list of names")
    }

    fn list(
        &mut self,
        section: &Section,
        key: &str,
        example: &str,
        expected: &str,
    ) -> Option<Vec<String>> {
        let entry = section.entry(key)?;
        let DeValue::Array(list) = entry.value() else {
            let one = self.expect_text(&entry, entry.value, example, expected)?;
            return Some(vec![one]);
        };
        if list.is_empty() {
            self.empty(
                &entry,
                entry.value.span(),
                &format!("{key} = \"{example}\""),
            );
            return None;
        }
        let texts: Vec<_> = list
            .iter()
            .map(|item| self.expect_text(&entry, item, example, expected))
            .collect();
        texts.into_iter().collect()
    }

    fn expect_text(
        &mut self,
        entry: &Entry,
        value: &Spanned<DeValue>,
        example: &str,
        expected: &str,
    ) -> Option<String> {
        let key = entry.key.get_ref();
        match value.get_ref() {
            DeValue::String(text) if !text.trim().is_empty() => Some(text.to_string()),
            DeValue::String(_) => {
                self.empty(entry, value.span(), &format!("{key} = \"{example}\""));
                None
            }
            _ => {
                let list = match example.strip_suffix(".jsonl") {
                    Some(_) => "[\"a.jsonl\", \"b.jsonl\"]",
                    None => "[\"a\", \"b\"]",
                };
                let example = format!("{key} = \"{example}\" or {key} = {list}");
                self.wrong_type_at(entry, value, expected, &example);
                None
            }
        }
    }

    pub fn boolean(&mut self, section: &Section, key: &str) -> Option<bool> {
        let entry = section.entry(key)?;
        if let DeValue::Boolean(value) = entry.value() {
            return Some(*value);
        }
        self.wrong_type(&entry, "true or false", &format!("{key} = true"));
        None
    }

    /// A whole number from 1 on.
    pub fn number(&mut self, section: &Section, key: &str) -> Option<u64> {
        let entry = section.entry(key)?;
        let number = match entry.value() {
            DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.wrong_type(&entry, "a whole number from 1 on", &format!("{key} = 1000"));
        }
        number
    }

    /// A whole number from 1 to `max`.
    pub fn count(&mut self, section: &Section, key: &str, max: u32) -> Option<u32> {
        let entry = section.entry(key)?;
        let number = match entry.value() {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
            _ => None,
        };
        let number = number.filter(|number| (1..=max).contains(number));
        if number.is_none() {
            let message = format!("\"{key}\" must be a whole number from 1 to {max}");
            self.wrong_value(&entry, &message, "");
        }
        number
    }

    pub fn duration(&mut self, section: &Section, key: &str) -> Option<Duration> {
        let entry = section.entry(key)?;
        self.duration_of(&entry, DURATION_FORMS)
    }

    /// `Some(None)` is "off".
    pub fn duration_or_off(&mut self, section: &Section, key: &str) -> Option<Option<Duration>> {
        let entry = section.entry(key)?;
        if matches!(entry.value(), DeValue::String(text) if text == "off") {
            return Some(None);
        }
        let forms = format!("{DURATION_FORMS}; \"off\" is allowed here");
        self.duration_of(&entry, &forms).map(Some)
    }

    fn duration_of(&mut self, entry: &Entry, forms: &str) -> Option<Duration> {
        let DeValue::String(text) = entry.value() else {
            self.wrong_type(
                entry,
                "a duration",
                &format!("{} = \"5s\"", entry.key.get_ref()),
            );
            return None;
        };
        let parsed = Duration::parse(text).ok().filter(|d| *d >= Duration::ZERO);
        if parsed.is_none() {
            let message = format!("\"{text}\" is not a duration");
            let span = entry.value.span();
            let mistake = self.mistake(span, &message, &entry.path, "expected a duration");
            mistake.notes.push(forms.to_owned());
        }
        parsed
    }

    /// One of a few words; `later` are words that will be known one day.
    pub fn choice<T: Copy>(
        &mut self,
        section: &Section,
        key: &str,
        choices: &[(&str, T)],
        later: &[&str],
    ) -> Option<T> {
        let entry = section.entry(key)?;
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let DeValue::String(text) = entry.value() else {
            self.wrong_type(
                &entry,
                &one_of(&words),
                &format!("{key} = \"{}\"", words[0]),
            );
            return None;
        };
        if let Some((_, value)) = choices.iter().find(|(word, _)| word == text) {
            return Some(*value);
        }
        let span = entry.value.span();
        let supported = format!("this version has: {}", quoted(&words));
        if later.contains(&text.as_ref()) {
            let message = format!(
                "{key} = \"{text}\"{} is not supported yet",
                section.suffix()
            );
            self.mistake(span, &message, &entry.path, &supported);
            return None;
        }
        let message = format!("unknown value \"{text}\" for \"{key}\"{}", section.suffix());
        let all: Vec<&str> = words.iter().chain(later).copied().collect();
        let label =
            did_you_mean(text, &all).unwrap_or_else(|| format!("expected {}", one_of(&words)));
        let mistake = self.mistake(span, &message, &entry.path, &label);
        mistake
            .notes
            .push(format!("known values: {}", quoted(&words)));
        if !later.is_empty() {
            mistake
                .notes
                .push(format!("not supported yet: {}", quoted(later)));
        }
        None
    }

    /// A table that may be missing.
    pub fn section<'t>(&mut self, parent: &Section<'t>, key: &str) -> Option<Section<'t>> {
        let entry = parent.entry(key)?;
        self.table(parent, &entry)
    }

    /// An entry that has to be a table.
    pub fn table<'t>(&mut self, parent: &Section<'t>, entry: &Entry<'t>) -> Option<Section<'t>> {
        if let DeValue::Table(table) = entry.value() {
            return Some(parent.child(entry, table));
        }
        self.wrong_type(entry, "a table", &format!("[{}]", entry.path));
        None
    }

    /// The elements of a list of tables, `[[key]]`, in the order of the file.
    pub fn elements<'t>(&mut self, parent: &Section<'t>, key: &str) -> Vec<Section<'t>> {
        let Some(entry) = parent.entry(key) else {
            return Vec::new();
        };
        let DeValue::Array(items) = entry.value() else {
            self.wrong_type(&entry, "a list of tables", &format!("[[{key}]]"));
            return Vec::new();
        };
        let mut elements = Vec::new();
        for item in items.iter() {
            match item.get_ref() {
                DeValue::Table(table) => elements.push(Section {
                    header: item.span(),
                    is_element: true,
                    ..parent.child(&entry, table)
                }),
                _ => self.wrong_type_at(&entry, item, "a list of tables", &format!("[[{key}]]")),
            }
        }
        elements
    }

    /// The tables below `key`, one per name, in the order of the file.
    pub fn named<'t>(&mut self, top: &Section<'t>, key: &str, example: &str) -> Vec<Section<'t>> {
        let header = format!("[{key}.{example}]");
        let Some(entry) = top.entry(key) else {
            return Vec::new();
        };
        let DeValue::Table(table) = entry.value() else {
            self.wrong_type(&entry, "a table per name", &header);
            return Vec::new();
        };
        let group = top.child(&entry, table);
        let mut sections = Vec::new();
        for name in table.keys().map(|k| k.get_ref().as_ref()) {
            let Some(entry) = group.entry(name) else {
                continue;
            };
            match entry.value() {
                DeValue::Table(table) => sections.push(group.child(&entry, table)),
                _ => self.wrong_type(&entry, "a table", &header),
            }
        }
        sections.sort_by_key(|s| s.header.start);
        sections
    }

    /// A key that has to be there and is not.
    pub fn missing(&mut self, section: &Section, key: &str, example: &str) {
        let message = format!("missing key \"{key}\"{}", section.suffix());
        let label = format!("add {example}");
        self.mistake(section.header.clone(), &message, &section.path(key), &label);
    }

    /// A key that is known but would be ignored here.
    pub fn useless(&mut self, section: &Section, key: &str, why: &str) {
        if let Some(entry) = section.entry(key) {
            let message = format!("\"{key}\" has no effect{}", section.suffix());
            self.mistake(entry.key_span(), &message, &entry.path, why);
        }
    }

    pub fn wrong_type(&mut self, entry: &Entry, expected: &str, example: &str) {
        self.wrong_type_at(entry, entry.value, expected, example);
    }

    fn wrong_type_at(
        &mut self,
        entry: &Entry,
        value: &Spanned<DeValue>,
        expected: &str,
        example: &str,
    ) {
        let key = entry.key.get_ref();
        let found = with_article(value.get_ref().type_str());
        let message = format!("\"{key}\" must be {expected}, not {found}");
        let label = format!("expected {expected}");
        let mistake = self.mistake(value.span(), &message, &entry.path, &label);
        mistake.notes.push(format!("for example: {example}"));
    }

    /// A value of the right type that cannot be what it says.
    pub fn wrong_value(&mut self, entry: &Entry, message: &str, label: &str) {
        self.mistake(entry.value.span(), message, &entry.path, label);
    }

    fn empty(&mut self, entry: &Entry, span: Range<usize>, example: &str) {
        let message = format!("\"{}\" is empty", entry.key.get_ref());
        let mistake = self.mistake(span, &message, &entry.path, "nothing here");
        mistake.notes.push(format!("for example: {example}"));
    }

    /// A syntax error of the TOML parser.
    fn syntax(&mut self, error: &toml::de::Error) {
        let span = error.span().unwrap_or(0..0);
        self.mistake(
            span,
            &format!("not valid TOML: {}", error.message()),
            "",
            "",
        );
    }

    pub fn mistake(
        &mut self,
        span: Range<usize>,
        message: &str,
        key: &str,
        label: &str,
    ) -> &mut Mistake {
        let mut mistake = Mistake::new(self.source, span, message.to_owned(), key.to_owned());
        mistake.label = label.to_owned();
        self.mistakes.push(mistake);
        self.mistakes.last_mut().expect("one was pushed just now")
    }
}

fn quoted(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(", ")
}

fn one_of(words: &[&str]) -> String {
    words
        .iter()
        .map(|word| format!("\"{word}\""))
        .collect::<Vec<_>>()
        .join(" or ")
}

fn with_article(noun: &str) -> String {
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {noun}")
}
