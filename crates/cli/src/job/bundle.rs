//! Gathers the files of a job for upload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use highwater_env::disk;
use highwater_job::config::{JobFile, QuerySource};
use highwater_job::job_file_of;

use crate::exit::UsageError;

/// The text of each file of a job, by its path in the job's folder.
pub(crate) type Files = BTreeMap<String, String>;

/// The name of a job, and its files: job file, query, functions and reference data.
pub(crate) fn gather(path: &Path) -> anyhow::Result<(String, Files)> {
    let job = JobFile::load(path)?;
    let mut paths = vec![job_file_of(path)];
    if let QuerySource::File(query) = &job.query {
        paths.push(query.clone());
    }
    paths.extend(job.functions.iter().map(|function| function.path.clone()));
    let references = job.inputs.iter().filter(|input| input.reference);
    paths.extend(references.flat_map(|input| input.paths.iter().cloned()));
    let mut files = Files::new();
    for path in paths {
        add(&path, &job.folder, &mut files)?;
    }
    Ok((job.name, files))
}

/// Adds a file, or all files in a folder.
fn add(path: &Path, folder: &Path, files: &mut Files) -> anyhow::Result<()> {
    if path.is_dir() {
        let inside: Vec<PathBuf> = disk::list(path)?;
        return inside.iter().try_for_each(|path| add(path, folder, files));
    }
    let inside = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let Some(name) = inside else {
        let message = format!(
            "{} is outside of the job's folder and cannot be uploaded; move it into the folder, or declare the job in \
             the settings of the node",
            path.display()
        );
        return Err(UsageError(message).into());
    };
    let text =
        disk::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    files.insert(name.to_owned(), text);
    Ok(())
}
