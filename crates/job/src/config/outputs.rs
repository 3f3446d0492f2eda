//! The `[outputs.*]` tables: `type`, `on_failure` and `early` are read here, the other keys by the endpoint in
//! `connect`.

use highwater_connect::{OUTPUT_KINDS, OutputFormat, OutputKind};
use highwater_settings::{FileReader, Section};
use highwater_time::Duration;
use toml::de::DeValue;

use super::{EarlyResults, Output, live};

const DEFAULT_KIND: &str = "file";

/// The shortest interval of early results.
const EVERY_MIN: Duration = Duration::from_millis(100);

impl Output {
    pub(super) fn read(reader: &mut FileReader, section: &Section) -> Option<Output> {
        let kinds: Vec<(&str, &OutputKind)> =
            OUTPUT_KINDS.iter().map(|kind| (kind.name, kind)).collect();
        let kind = match section.has("type") {
            true => reader.choice(section, "type", &kinds, &[])?,
            false => OUTPUT_KINDS.iter().find(|kind| kind.name == DEFAULT_KIND)?,
        };
        let on_failure = live::read_on_failure(reader, section);
        if let (Some(missing), Some(entry)) = (kind.missing_feature, section.entry("type")) {
            let (message, label) = (missing.to_string(), "no outputs of this type here");
            reader.mistake(entry.key_span(), &message, entry.path(), label);
            return None;
        }
        let early = read_early(reader, section);
        let mut keys = vec!["type", "on_failure", "early"];
        keys.extend(kind.keys);
        reader.known_keys(section, &keys);
        Some(Output {
            name: section.leaf().to_owned(),
            settings: (kind.read)(reader, section)?,
            on_failure,
            early,
        })
    }

    /// Whether each row is a line of JSON.
    pub(super) fn writes_lines(&self) -> bool {
        let target = self.settings.sink_target("".as_ref());
        target.is_none_or(|target| target.format == OutputFormat::JsonLines)
    }
}

/// `early = "1s"`, or `early = { every = "1s", after = "5s" }`.
fn read_early(reader: &mut FileReader, section: &Section) -> Option<EarlyResults> {
    let entry = section.entry("early")?;
    let (every, after, entry) = match entry.value() {
        DeValue::Table(_) => {
            let table = reader.table(section, &entry)?;
            reader.known_keys(&table, &["every", "after"]);
            if !table.has("every") {
                reader.missing(&table, "every", "every = \"1s\"");
            }
            let after = reader.duration(&table, "after").unwrap_or(Duration::ZERO);
            (
                reader.duration(&table, "every")?,
                after,
                table.entry("every")?,
            )
        }
        _ => (reader.duration(section, "early")?, Duration::ZERO, entry),
    };
    if every < EVERY_MIN {
        let message = format!("early results come at least {EVERY_MIN} apart");
        reader.wrong_value(&entry, &message, "");
        return None;
    }
    Some(EarlyResults { every, after })
}
