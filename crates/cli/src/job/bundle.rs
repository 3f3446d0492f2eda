//! The files that make a job, gathered from its folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use highwater_env::disk;
use highwater_job::config::{JobFile, QuerySource};
use highwater_job::job_file_of;

use crate::exit::BadRequest;

/// A job's files by their paths in its folder.
pub type Files = BTreeMap<String, String>;

/// The job file, the query, functions and reference data.
pub fn gather(path: &Path) -> anyhow::Result<(String, Files)> {
    let job = JobFile::load(path)?;
    let mut found = vec![job_file_of(path)];
    if let QuerySource::File(query) = &job.query {
        found.push(query.clone());
    }
    found.extend(job.functions.iter().map(|function| function.path.clone()));
    let references = job.inputs.iter().filter(|input| input.reference);
    found.extend(references.flat_map(|input| input.paths.iter().cloned()));
    let mut files = Files::new();
    for path in found {
        add(&path, &job.folder, &mut files)?;
    }
    Ok((job.name, files))
}

/// A file, or everything in a folder.
fn add(path: &Path, folder: &Path, files: &mut Files) -> anyhow::Result<()> {
    if path.is_dir() {
        let inside: Vec<PathBuf> = disk::list(path)?;
        return inside.iter().try_for_each(|path| add(path, folder, files));
    }
    let inside = path.strip_prefix(folder).ok().and_then(Path::to_str);
    let Some(name) = inside else {
        let message = format!(
            "{} lies outside of the job's folder, and cannot be sent with it; move it there, or name the job in the \
             settings of the node",
            path.display()
        );
        return Err(BadRequest(message).into());
    };
    let text =
        disk::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    files.insert(name.to_owned(), text);
    Ok(())
}
