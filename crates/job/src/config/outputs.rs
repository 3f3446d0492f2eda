//! The `[outputs.*]` tables: `type` and `on_failure` are read here, the other keys by the endpoint in `connect`.

use highwater_connect::{OUTPUT_KINDS, OutputFormat, OutputKind};
use highwater_settings::{FileReader, Section};

use super::{Output, live};

const DEFAULT_KIND: &str = "file";
const KINDS_LATER: &[&str] = &["kafka"];

impl Output {
    pub(super) fn read(reader: &mut FileReader, section: &Section) -> Option<Output> {
        let kinds: Vec<(&str, &OutputKind)> =
            OUTPUT_KINDS.iter().map(|kind| (kind.name, kind)).collect();
        let kind = match section.has("type") {
            true => reader.choice(section, "type", &kinds, KINDS_LATER)?,
            false => OUTPUT_KINDS.iter().find(|kind| kind.name == DEFAULT_KIND)?,
        };
        let on_failure = live::read_on_failure(reader, section);
        if let (Some(missing), Some(entry)) = (kind.missing_feature, section.entry("type")) {
            let (message, label) = (missing.to_string(), "no outputs of this type here");
            reader.mistake(entry.key_span(), &message, entry.path(), label);
            return None;
        }
        let mut keys = vec!["type", "on_failure"];
        keys.extend(kind.keys);
        reader.known_keys(section, &keys);
        Some(Output {
            name: section.leaf().to_owned(),
            settings: (kind.read)(reader, section)?,
            on_failure,
        })
    }

    /// Whether each row is a line of JSON.
    pub(super) fn writes_lines(&self) -> bool {
        let target = self.settings.sink_target("".as_ref());
        target.is_none_or(|target| target.format == OutputFormat::JsonLines)
    }
}
