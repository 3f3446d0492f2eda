//! Rows in files, below a folder or in an object store: exactly once, because the same rows always make the same files.
//!
//! [`open_files`] assigns rows to files, [`template`] decides the folder of a file, and a file is named after the
//! number of its first row. A complete file is written in one step ([`store`], `remote`). After a restart the rows of
//! incomplete files come back from the endpoint's state, and the rows after the checkpoint are written again; an
//! existing file must have exactly the bytes that would be written, and is left alone.

mod body;
mod open_files;
#[cfg(any(test, feature = "object-store"))]
pub(crate) mod remote;
mod store;
#[cfg(any(feature = "aws", feature = "azure", feature = "gcp"))]
mod store_client;
mod template;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use highwater_codec::Writer;
use highwater_env::EgressPolicy;
use highwater_query::plan::Name;
use highwater_settings::SecretError;
use highwater_time::{Duration, Instant};

use super::state::{self, EndpointKind};
use super::{
    Endpoint, EndpointError, EndpointFuture, OpenResult, OutputContext, OutputKind, OutputSettings,
    OutsideAccess, Rows,
};
use crate::rows::RowNames;
use crate::source::MissingFeature;
use crate::writer::OutputFormat;
use body::Encoder;
use open_files::{CompleteFile, Limits, OpenFiles};
use store::{Folder, Store};
use template::Template;

/// The settings of an output in files.
#[derive(Clone, PartialEq, Eq)]
pub struct FilesOutput {
    /// A folder, or a URL such as `s3://bucket/prefix`.
    pub location: String,
    /// Subfolders: text, `{date}`, `{hour}`, `{minute}`, `{datetime:yyyy}` and so on, and `{Column}`.
    pub folders: String,
    pub format: OutputFormat,
    /// A file is complete with this many rows.
    pub rows_max: u64,
    /// The span of event time of one file, which is written when the span has passed.
    pub every: Option<Duration>,
    /// Settings of the object store, such as `region`, beside those in the environment. May be secret, and are never
    /// shown.
    pub options: Vec<(String, String)>,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "files",
    keys: &[
        "path",
        "folders",
        "format",
        "delimiter",
        "header",
        "every",
        "rows_max",
        "options",
    ],
    read: |reader, section| {
        let location = reader.required_text(section, "path", "out/alerts")?;
        let format = OutputFormat::read(reader, section, OutputFormat::JsonLines);
        let mut output = FilesOutput::new(location, format);
        let folders = reader.text(section, "folders", "{date}/{hour}");
        output.folders = folders.unwrap_or_default();
        let every = reader.duration_or_off(section, "every");
        output.every = every.unwrap_or(output.every);
        let rows_max = reader.number(section, "rows_max");
        output.rows_max = rows_max.unwrap_or(output.rows_max);
        output.options = reader.pairs(section, "options", "region = \"eu-central-1\"");
        Some(Arc::new(output))
    },
    missing_feature: None,
};

impl OutputSettings for FilesOutput {
    fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        let texts = self.options.iter().map(|(_, value)| value);
        for text in texts.chain([&self.location]) {
            let checked = access.secrets.check_text(text);
            checked.map_err(|error| error.to_string())?;
        }
        match self.location.contains("://") {
            true => check_store_options(&self.options, access),
            false => access.check_path(&folder.join(&self.location)),
        }
    }

    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        Ok(Box::new(FilesEndpoint::open(self, names, context)?))
    }
}

impl FilesOutput {
    pub const ROWS_MAX: u64 = 100_000;
    pub const EVERY: Duration = Duration::from_minutes(5);
    /// A file is complete with this many bytes, before compression.
    pub(crate) const FILE_BYTES_MAX: usize = 8 << 20;
    /// The size of all incomplete files together, which is also what they add to a checkpoint.
    pub(crate) const OPEN_BYTES_MAX: usize = 16 << 20;
    /// How many files may be open; when one more is needed, the oldest is completed.
    pub(crate) const OPEN_MAX: usize = 1000;

    /// Below a folder, with the defaults of everything else.
    pub fn new(location: impl Into<String>, format: OutputFormat) -> FilesOutput {
        FilesOutput {
            location: location.into(),
            folders: String::new(),
            format,
            rows_max: FilesOutput::ROWS_MAX,
            every: Some(FilesOutput::EVERY),
            options: Vec::new(),
        }
    }

    fn limits(&self) -> Limits {
        Limits {
            rows_max: self.rows_max.max(1),
            every: self.every,
            file_bytes_max: FilesOutput::FILE_BYTES_MAX,
            open_bytes_max: FilesOutput::OPEN_BYTES_MAX,
            open_max: FilesOutput::OPEN_MAX,
        }
    }
}

/// Other options name files, proxies and endpoints, which a definition of a user may not choose.
pub(crate) fn check_store_options(
    options: &[(String, String)],
    access: &OutsideAccess,
) -> Result<(), String> {
    if !access.egress.is_restricted() {
        return Ok(());
    }
    let mut names = options.iter().map(|(name, _)| name);
    match names.find(|name| !is_user_option(name)) {
        Some(name) => Err(format!(
            "only jobs of the settings may set the option `{name}` of an object store"
        )),
        None => Ok(()),
    }
}

/// Whether a definition of a user may set this option of an object store: the account, its key, and how objects are
/// stored.
fn is_user_option(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "access_key",
        "access_key_id",
        "account_key",
        "account_name",
        "client_id",
        "client_secret",
        "default_region",
        "region",
        "sas_key",
        "sas_token",
        "secret_access_key",
        "server_side_encryption",
        "service_account_key",
        "session_token",
        "skip_signature",
        "sse_bucket_key_enabled",
        "sse_kms_key_id",
        "tenant_id",
        "token",
        "virtual_hosted_style_request",
    ];
    let name = name.to_ascii_lowercase();
    let prefixes = ["aws_", "azure_storage_", "azure_", "google_"];
    let mut short = prefixes
        .iter()
        .filter_map(|prefix| name.strip_prefix(prefix));
    NAMES.contains(&short.next().unwrap_or(&name))
}

impl fmt::Debug for FilesOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilesOutput")
            .field("location", &self.location)
            .field("folders", &self.folders)
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

pub(super) struct FilesEndpoint {
    template: Template,
    limits: Limits,
    format: OutputFormat,
    /// The job's epoch. Part of the file names, because rows of different epochs have the same numbers.
    epoch: u64,
    names: Vec<Name>,
    store: Box<dyn Store>,
    open_files: OpenFiles,
    /// Complete files that are not written yet.
    complete: VecDeque<CompleteFile>,
    /// The number of the next row to take.
    next: u64,
}

impl FilesEndpoint {
    pub(super) fn open(
        output: &FilesOutput,
        names: Vec<Name>,
        context: &OutputContext,
    ) -> Result<FilesEndpoint, EndpointError> {
        let location = match &context.refused_by {
            None => output.location.clone(),
            Some(other) => format!("{}/refused-by-{other}", output.location),
        };
        let store: Box<dyn Store> = match location.split_once("://") {
            None => {
                let folder = context.folder.join(location);
                Box::new(Folder::new(Arc::clone(&context.disk), folder))
            }
            Some((scheme, _)) => {
                let resolve = |(name, value): &(String, String)| {
                    let value = context.access.secrets.resolve(value)?;
                    Ok((name.clone(), value.into_owned()))
                };
                let options = output.options.iter().map(resolve);
                let options: Result<Vec<_>, SecretError> = options.collect();
                let options = options.map_err(EndpointError::unfit)?;
                object_store(scheme, &location, &options, &context.access.egress)?
            }
        };
        let mut endpoint = FilesEndpoint::over(output, output.limits(), names, store)?;
        endpoint.epoch = context.epoch;
        Ok(endpoint)
    }

    fn over(
        output: &FilesOutput,
        limits: Limits,
        names: Vec<Name>,
        store: Box<dyn Store>,
    ) -> Result<FilesEndpoint, EndpointError> {
        if limits.every.is_some_and(|every| every <= Duration::ZERO) {
            return Err(EndpointError::unfit("`every` must be longer than 0"));
        }
        let template = Template::parse(&output.folders).map_err(EndpointError::unfit)?;
        let known = RowNames::new(names.clone());
        if let Some(column) = template.columns().find(|column| !known.may_have(column)) {
            return Err(EndpointError::unfit(format!(
                "`{}`: the output has no column `{column}`",
                output.folders
            )));
        }
        let encoder = Encoder::new(output.format, names.clone());
        Ok(FilesEndpoint {
            open_files: OpenFiles::new(template.clone(), limits, encoder),
            template,
            limits,
            format: output.format,
            epoch: 0,
            names,
            store,
            complete: VecDeque::new(),
            next: 0,
        })
    }

    fn start(&mut self, state: Option<&[u8]>) -> Result<(), EndpointError> {
        let encoder = Encoder::new(self.format, self.names.clone());
        self.open_files = OpenFiles::new(self.template.clone(), self.limits, encoder);
        self.complete.clear();
        self.next = 0;
        let Some(state) = state else { return Ok(()) };
        let mut input = state::open(EndpointKind::Files, state)?;
        let format = input.blob().map_err(state::damaged)?;
        if format != self.open_files.encoder().extension().as_bytes() {
            return Err(EndpointError::unfit(
                "the checkpoint has rows in the previous format: start the job from the beginning, or under another name",
            ));
        }
        self.next = input.u64().map_err(state::damaged)?;
        self.open_files.restore(&mut input).map_err(state::damaged)
    }

    async fn accept(&mut self, rows: &Rows) -> Result<(), EndpointError> {
        self.write_complete().await?;
        let mut done = Vec::new();
        for row in rows.from(self.next) {
            let number = rows.first + row as u64;
            self.open_files.push(&rows.chunk, row, number, &mut done);
        }
        self.next = self.next.max(rows.end());
        self.complete.extend(done);
        // The rows are accepted from here on, so the next call reports a failure.
        let _ = self.write_complete().await;
        Ok(())
    }

    async fn complete_before(&mut self, watermark: Instant) -> Result<(), EndpointError> {
        let mut done = Vec::new();
        self.open_files.advance(watermark, &mut done);
        self.complete.extend(done);
        self.write_complete().await
    }

    async fn write_complete(&mut self) -> Result<(), EndpointError> {
        while let Some(file) = self.complete.front_mut() {
            let encoder = self.open_files.encoder();
            let bytes = match &file.bytes {
                Some(bytes) => bytes.clone(),
                None => {
                    let finish = encoder.finish(Arc::clone(&file.body));
                    let made = tokio::task::spawn_blocking(finish).await;
                    let made = made.map_err(EndpointError::unavailable)?;
                    let bytes = Bytes::from(made.map_err(EndpointError::unfit)?);
                    file.bytes.insert(bytes).clone()
                }
            };
            let path = path(file, self.epoch, encoder.extension());
            self.store.put(&path, bytes).await?;
            self.complete.pop_front();
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<Vec<u8>, EndpointError> {
        self.write_complete().await?;
        let mut out = state::begin(EndpointKind::Files);
        out.blob(self.open_files.encoder().extension().as_bytes());
        out.u64(self.next);
        self.open_files.save(&mut out);
        Ok(out)
    }
}

fn path(file: &CompleteFile, epoch: u64, extension: &str) -> String {
    let folders = file.folder.split('/').filter(|folder| !folder.is_empty());
    let name = match epoch {
        0 => format!("part-{:012}.{extension}", file.first),
        epoch => format!("part-{epoch}-{:012}.{extension}", file.first),
    };
    let pieces: Vec<&str> = folders.chain([&name[..]]).collect();
    pieces.join("/")
}

#[cfg(feature = "object-store")]
fn object_store(
    scheme: &str,
    url: &str,
    options: &[(String, String)],
    egress: &EgressPolicy,
) -> Result<Box<dyn Store>, EndpointError> {
    let _ = scheme;
    remote::open(url, options, egress)
}

#[cfg(not(feature = "object-store"))]
fn object_store(
    scheme: &str,
    _: &str,
    _: &[(String, String)],
    _: &EgressPolicy,
) -> Result<Box<dyn Store>, EndpointError> {
    Err(no_object_store(scheme))
}

pub(crate) fn no_object_store(scheme: &str) -> EndpointError {
    let feature = match scheme {
        "s3" | "s3a" => "aws",
        "az" | "abfs" | "abfss" => "azure",
        "gs" => "gcp",
        _ => return EndpointError::unfit(format!("there is no object store `{scheme}://`")),
    };
    EndpointError::unfit(MissingFeature(feature))
}

impl Endpoint for FilesEndpoint {
    fn resume<'a>(&'a mut self, state: Option<&'a [u8]>) -> EndpointFuture<'a, ()> {
        Box::pin(std::future::ready(self.start(state)))
    }

    fn write<'a>(&'a mut self, rows: &'a Rows) -> EndpointFuture<'a, ()> {
        Box::pin(self.accept(rows))
    }

    fn advance(&mut self, watermark: Instant) -> EndpointFuture<'_, ()> {
        Box::pin(self.complete_before(watermark))
    }

    fn checkpoint(&mut self) -> EndpointFuture<'_, Vec<u8>> {
        Box::pin(self.flush())
    }
}
