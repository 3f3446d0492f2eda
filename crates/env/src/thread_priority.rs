//! The priority of threads.

/// A thread, by its number in the operating system. `None` where threads have no priority of their own.
#[derive(Clone, Copy, Debug)]
pub struct ThreadNumber(#[cfg(target_os = "linux")] rustix::process::Pid);

#[cfg(target_os = "linux")]
impl ThreadNumber {
    pub fn current() -> Option<ThreadNumber> {
        Some(ThreadNumber(rustix::thread::gettid()))
    }

    /// Lowers the priority as far as possible: the thread then runs when no other thread wants to. A thread that has
    /// ended is ignored.
    pub fn lower_priority(self) {
        const LOWEST: i32 = 19;
        // On Linux this is about one thread, not about its process.
        let _ = rustix::process::setpriority_process(Some(self.0), LOWEST);
    }
}

#[cfg(not(target_os = "linux"))]
impl ThreadNumber {
    pub fn current() -> Option<ThreadNumber> {
        None
    }

    pub fn lower_priority(self) {}
}
