//! File descriptors: the limit of the process, the share of sockets, and a reserve for the log.
//!
//! Connections of clients must not take the descriptors that the log needs. [`DescriptorBudget::for_process`] divides
//! the limit between the files of the log and the connections of the listeners. A few spare descriptors are released
//! when an operation of [`RealDisk`](crate::RealDisk) finds none free.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Number of spare descriptors.
const SPARE_DESCRIPTORS: usize = 16;

/// The descriptors of this process, divided between files and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorBudget {
    /// The soft limit in effect.
    pub limit: u64,
    /// How many files the log may keep open.
    pub files: usize,
    /// How many connections all listeners together may keep open.
    pub connections: usize,
}

impl DescriptorBudget {
    /// Raises the soft limit of the process to its hard limit, opens the spare descriptors, and reserves up to
    /// `files_wanted` descriptors for files, but no more than a quarter of the limit.
    pub fn for_process(files_wanted: usize) -> DescriptorBudget {
        let limit = raise_limit();
        fill_spares(SPARE_DESCRIPTORS);
        DescriptorBudget::divide(limit, files_wanted)
    }

    /// Half of the files again, and a sixteenth of the limit, stay free for files that are open for a short time and
    /// for connections to other services.
    fn divide(limit: u64, files_wanted: usize) -> DescriptorBudget {
        let all = usize::try_from(limit).unwrap_or(usize::MAX);
        let files = files_wanted.min(all / 4).max(1);
        let other = SPARE_DESCRIPTORS + files / 2 + (all / 16).clamp(16, 1024);
        DescriptorBudget {
            limit,
            files,
            connections: all.saturating_sub(files + other).max(all / 8),
        }
    }

    /// Divides the connections between two kinds of listeners: each gets its demand if the other leaves room, and
    /// otherwise at least half.
    pub fn divide_connections(&self, first: usize, second: usize) -> (usize, usize) {
        let half = self.connections / 2;
        let second_share = second.min(self.connections - first.min(half));
        (first.min(self.connections - second_share), second_share)
    }
}

/// Whether an operation failed because the process or the system has no free descriptor. It may succeed later.
pub fn is_descriptor_shortage(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        let shortages = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        error
            .raw_os_error()
            .is_some_and(|code| shortages.contains(&code))
    }
    #[cfg(not(unix))]
    {
        let _ = error;
        false
    }
}

/// Returns the soft limit in effect.
#[cfg(unix)]
fn raise_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let old = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: old.maximum,
        ..old
    };
    // An unlimited hard limit cannot be taken over on every system; then the soft limit stays.
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => old.maximum.unwrap_or(u64::MAX),
        Err(_) => old.current.unwrap_or(u64::MAX),
    }
}

#[cfg(not(unix))]
fn raise_limit() -> u64 {
    u64::MAX
}

/// Descriptors that are open only to be released.
static SPARES: Mutex<Vec<File>> = Mutex::new(Vec::new());
/// How many of them are missing.
static SPARES_MISSING: AtomicUsize = AtomicUsize::new(0);

#[allow(
    clippy::disallowed_methods,
    reason = "it opens no data, only a descriptor"
)]
fn fill_spares(count: usize) {
    let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    while spares.len() < count {
        match File::open("/dev/null") {
            Ok(spare) => spares.push(spare),
            Err(_) => break,
        }
    }
    SPARES_MISSING.store(count - spares.len().min(count), Ordering::Relaxed);
}

/// Runs an operation that opens a file. Without a free descriptor, releases spare ones until it succeeds.
pub(crate) fn with_spares<T>(operation: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match operation() {
        Err(error) if is_descriptor_shortage(&error) => {}
        done => {
            if SPARES_MISSING.load(Ordering::Relaxed) > 0 {
                fill_spares(SPARE_DESCRIPTORS);
            }
            return done;
        }
    }
    let mut spares = SPARES.lock().unwrap_or_else(PoisonError::into_inner);
    while let Some(spare) = spares.pop() {
        drop(spare);
        SPARES_MISSING.fetch_add(1, Ordering::Relaxed);
        match operation() {
            Err(error) if is_descriptor_shortage(&error) => {}
            done => return done,
        }
    }
    operation()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_the_descriptors_of_files() {
        for (limit, files, connections) in [
            (256, 64, 128),
            (1024, 256, 560),
            (20_000, 512, 18_192),
            (1 << 20, 512, 1_046_768),
        ] {
            let budget = DescriptorBudget::divide(limit, 512);
            assert_eq!((budget.files, budget.connections), (files, connections));
            assert!(((files + connections) as u64) < limit);
        }
    }

    #[test]
    fn a_listener_gets_at_least_half_of_the_connections_if_it_wants_them() {
        let budget = DescriptorBudget::divide(1024, 512);
        for (wanted, given) in [
            ((4096, 10_000), (280, 280)),
            ((100, 10_000), (100, 460)),
            ((4096, 100), (460, 100)),
            ((10, 20), (10, 20)),
        ] {
            assert_eq!(budget.divide_connections(wanted.0, wanted.1), given);
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_shortage_is_told_from_other_errors() {
        assert!(is_descriptor_shortage(&io::Error::from_raw_os_error(24)));
        assert!(!is_descriptor_shortage(&io::ErrorKind::NotFound.into()));
    }
}
