//! Destinations of results: a file that appears only when it is complete, or standard output.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use highwater_env::disk::{self, AtomicFile};
use thiserror::Error;

use crate::writer::WriteError;

const BUFFER_BYTES: usize = 256 << 10;

pub trait Sink: Send {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError>;

    /// Flushes buffered bytes of an interactive output; a file becomes visible only when committed.
    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Publishes everything written. A sink dropped without this leaves nothing behind, as far as possible.
    fn commit(self: Box<Self>) -> Result<(), SinkError>;
}

#[derive(Debug, Error)]
pub enum SinkError {
    #[error("cannot create {}: {source}", file.display())]
    Create { file: PathBuf, source: io::Error },
    #[error("cannot write {to}: {source}")]
    Write { to: String, source: io::Error },
    /// The reader has closed the pipe, as `head` does; end quietly.
    #[error("standard output was closed by its reader")]
    Closed,
    #[error("{0}")]
    Format(#[from] WriteError),
}

/// A file that gets its name when it is committed, replacing an older file of that name.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    file: BufWriter<AtomicFile>,
}

impl FileSink {
    pub fn create(path: impl AsRef<Path>) -> Result<FileSink, SinkError> {
        let path = path.as_ref().to_path_buf();
        // A leftover that cannot be removed does no harm, and a missing folder is reported below.
        let _ = disk::remove_stale(&path);
        match disk::create_atomic(&path) {
            Ok(file) => Ok(FileSink {
                path,
                file: BufWriter::with_capacity(BUFFER_BYTES, file),
            }),
            Err(source) => Err(SinkError::Create { file: path, source }),
        }
    }
}

impl Sink for FileSink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        self.file
            .write_all(bytes)
            .map_err(|source| failed(&self.path, source))
    }

    fn commit(self: Box<Self>) -> Result<(), SinkError> {
        let FileSink { path, file } = *self;
        file.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(AtomicFile::commit)
            .map_err(|source| failed(&path, source))
    }
}

fn failed(path: &Path, source: io::Error) -> SinkError {
    SinkError::Write {
        to: path.display().to_string(),
        source,
    }
}

/// Standard output, buffered.
pub struct StdoutSink {
    out: BufWriter<Box<dyn Write + Send>>,
}

impl StdoutSink {
    pub fn new() -> StdoutSink {
        StdoutSink::over(Box::new(io::stdout()))
    }

    fn over(out: Box<dyn Write + Send>) -> StdoutSink {
        StdoutSink {
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
        }
    }

    fn check(&self, result: io::Result<()>) -> Result<(), SinkError> {
        result.map_err(|source| match source.kind() {
            io::ErrorKind::BrokenPipe => SinkError::Closed,
            _ => SinkError::Write {
                to: "standard output".into(),
                source,
            },
        })
    }
}

impl Default for StdoutSink {
    fn default() -> StdoutSink {
        StdoutSink::new()
    }
}

impl Sink for StdoutSink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SinkError> {
        let result = self.out.write_all(bytes);
        self.check(result)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        let result = self.out.flush();
        self.check(result)
    }

    fn commit(mut self: Box<Self>) -> Result<(), SinkError> {
        self.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct ClosedPipe;

    impl Write for ClosedPipe {
        fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_appears_when_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let mut sink = Box::new(FileSink::create(&path).unwrap());
        sink.write(b"{}\n").unwrap();
        sink.flush().unwrap();
        assert!(!path.exists());
        sink.commit().unwrap();
        assert_eq!(disk::read_to_string(&path).unwrap(), "{}\n");
    }

    #[test]
    fn a_file_that_is_not_committed_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let mut sink = FileSink::create(folder.path().join("out.jsonl")).unwrap();
        sink.write(&vec![b'x'; 2 * BUFFER_BYTES]).unwrap();
        drop(sink);
        assert_eq!(disk::list(folder.path()).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn what_a_killed_run_left_behind_goes_when_the_output_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.jsonl");
        let left = folder.path().join(".out.jsonl.00112233445566ff.tmp");
        let mut half = disk::create_atomic(&left).unwrap();
        half.write_all(b"{").unwrap();
        half.commit().unwrap();
        let other = FileSink::create(&path).unwrap();
        Box::new(FileSink::create(&path).unwrap()).commit().unwrap();
        Box::new(other).commit().unwrap();
        assert_eq!(disk::list(folder.path()).unwrap(), [path]);
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named() {
        let error = FileSink::create("/nowhere/at/all/out.jsonl").unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot create /nowhere/at/all/out.jsonl: ")
        );
    }

    #[test]
    fn a_closed_pipe_is_told_from_other_failures() {
        let mut sink = Box::new(StdoutSink::over(Box::new(ClosedPipe)));
        sink.write(b"{}\n").unwrap();
        assert!(matches!(sink.flush(), Err(SinkError::Closed)));
        assert!(matches!(sink.commit(), Err(SinkError::Closed)));
    }
}
