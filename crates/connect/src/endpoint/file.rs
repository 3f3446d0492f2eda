//! One file: a job over files writes it as a whole; a live job writes a folder of files (`files`), because its rows
//! never end.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use highwater_query::plan::Name;

use super::{
    FilesOutput, OpenResult, OutputContext, OutputKind, OutputSettings, OutsideAccess, SinkTarget,
};
use crate::writer::OutputFormat;

/// The settings of an output to one file.
#[derive(Clone, Debug)]
struct FileOutput {
    path: PathBuf,
    format: OutputFormat,
}

pub(super) const KIND: OutputKind = OutputKind {
    name: "file",
    keys: &["path", "format", "delimiter", "header"],
    read: |reader, section| {
        if !section.has("path") {
            let example = "path = \"out/Alerts.jsonl\", or type = \"stdout\"";
            reader.missing(section, "path", example);
        }
        let path = reader.path(section, "path", "out/Alerts.jsonl")?;
        let format = OutputFormat::read(reader, section, OutputFormat::of_name(&path));
        Some(Arc::new(FileOutput { path, format }))
    },
    missing_feature: None,
};

impl OutputSettings for FileOutput {
    fn open(&self, names: Vec<Name>, context: &OutputContext) -> OpenResult {
        FilesOutput::new(self.path.display().to_string(), self.format).open(names, context)
    }

    fn check(&self, access: &OutsideAccess, folder: &Path) -> Result<(), String> {
        access.check_path(&folder.join(&self.path))
    }

    fn sink_target(&self, folder: &Path) -> Option<SinkTarget> {
        Some(SinkTarget {
            path: Some(folder.join(&self.path)),
            format: self.format,
        })
    }
}
