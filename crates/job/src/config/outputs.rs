//! Outputs that only a live job writes to.

use highwater_connect::{
    FilesOutput, HubOutput, OutputFormat, OutputSpec, PostgresOutput, QueueOutput, WebhookOutput,
};
use highwater_time::Duration;
use toml::de::DeValue;

use super::reader::{Reader, Section};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Hub,
    Files,
    Postgres,
    Webhook,
    Queue,
}

pub(super) fn read(
    reader: &mut Reader,
    section: &Section,
    kind: Kind,
    format: impl FnOnce(&mut Reader) -> OutputFormat,
) -> Option<OutputSpec> {
    let known: &[&str] = match kind {
        Kind::Hub => &["hub", "key"],
        Kind::Files => &[
            "path",
            "folders",
            "format",
            "delimiter",
            "header",
            "every",
            "rows_max",
            "options",
        ],
        Kind::Postgres => &["connection", "table", "key", "timeout", "ca"],
        Kind::Webhook => &["url", "headers", "lines", "rows_max", "timeout"],
        Kind::Queue => &["queue", "session"],
    };
    let known: Vec<&str> = ["type", "on_failure"]
        .iter()
        .chain(known)
        .copied()
        .collect();
    reader.known_keys(section, &known);
    Some(match kind {
        Kind::Hub => OutputSpec::Hub(HubOutput {
            hub: needed(reader, section, "hub", "alerts")?,
            key: reader.text(section, "key", "plate"),
        }),
        Kind::Files => {
            let path = needed(reader, section, "path", "out/alerts")?;
            let mut files = FilesOutput::new(path, format(reader));
            files.folders = reader
                .text(section, "folders", "{date}/{hour}")
                .unwrap_or_default();
            if let Some(every) = reader.duration_or_off(section, "every") {
                files.every = every;
            }
            files.rows_max = reader.number(section, "rows_max").unwrap_or(files.rows_max);
            files.options = pairs(reader, section, "options", "region = \"eu-central-1\"");
            OutputSpec::Files(files)
        }
        Kind::Postgres => {
            let connection = needed(
                reader,
                section,
                "connection",
                "postgres://user@host/database",
            )?;
            let table = needed(reader, section, "table", "alerts")?;
            let mut postgres = PostgresOutput::new(connection, table);
            postgres.key = reader.texts(section, "key", "plate").unwrap_or_default();
            postgres.timeout = timeout(reader, section).unwrap_or(postgres.timeout);
            postgres.ca = reader.text(section, "ca", "-----BEGIN CERTIFICATE-----");
            OutputSpec::Postgres(postgres)
        }
        Kind::Webhook => {
            let url = needed(reader, section, "url", "https://example.com/alerts")?;
            let mut webhook = WebhookOutput::new(url);
            webhook.headers = pairs(reader, section, "headers", "authorization = \"Bearer ..\"");
            webhook.lines = reader.boolean(section, "lines").unwrap_or(false);
            let rows_max = reader.number(section, "rows_max");
            webhook.rows_max = rows_max.map_or(webhook.rows_max, |rows| rows as usize);
            webhook.timeout = timeout(reader, section).unwrap_or(webhook.timeout);
            OutputSpec::Webhook(webhook)
        }
        Kind::Queue => OutputSpec::Queue(QueueOutput {
            queue: needed(reader, section, "queue", "orders")?,
            session: reader.text(section, "session", "plate"),
        }),
    })
}

fn needed(reader: &mut Reader, section: &Section, key: &str, example: &str) -> Option<String> {
    if !section.has(key) {
        reader.missing(section, key, &format!("{key} = \"{example}\""));
    }
    reader.text(section, key, example)
}

fn timeout(reader: &mut Reader, section: &Section) -> Option<std::time::Duration> {
    let timeout = reader.duration(section, "timeout")?;
    let positive = timeout.max(Duration::from_millis(1));
    Some(std::time::Duration::from_micros(
        positive.ticks().unsigned_abs() / 10,
    ))
}

/// A table of texts.
fn pairs(
    reader: &mut Reader,
    section: &Section,
    key: &str,
    example: &str,
) -> Vec<(String, String)> {
    let Some(table) = reader.section(section, key) else {
        return Vec::new();
    };
    let entries: Vec<_> = table.entries().collect();
    let mut pairs = Vec::new();
    for entry in entries {
        match entry.value() {
            DeValue::String(text) => pairs.push((entry.name().to_owned(), text.to_string())),
            _ => reader.wrong_type(&entry, "a string", example),
        }
    }
    pairs
}
