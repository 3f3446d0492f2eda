//! CPU time and memory of processes, as the operating system reports them.

use std::time::Duration;

/// CPU time and memory of this process; `None` if the system does not report it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub cpu: Option<Duration>,
    pub memory_peak_bytes: Option<u64>,
}

/// Linux reports CPU time in hundredths of a second, independent of the kernel's tick.
const TICKS_PER_SECOND: u64 = 100;

pub fn usage() -> Usage {
    Usage {
        cpu: cpu_of(&read("/proc/self/stat")),
        memory_peak_bytes: peak_of(&read("/proc/self/status")),
    }
}

/// CPU time of the calling thread.
pub fn thread_cpu() -> Option<Duration> {
    cpu_of(&read("/proc/thread-self/stat"))
}

/// CPU time of the process with this id.
pub fn process_cpu(number: u32) -> Option<Duration> {
    cpu_of(&read(&format!("/proc/{number}/stat")))
}

#[allow(
    clippy::disallowed_methods,
    reason = "files of the system, not data files"
)]
fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Fields 14 and 15 of the line. The name in field 2 may contain blanks, so counting starts after it.
fn cpu_of(stat: &str) -> Option<Duration> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let user: u64 = fields.get(11)?.parse().ok()?;
    let system: u64 = fields.get(12)?.parse().ok()?;
    Some(Duration::from_millis(
        (user + system) * 1000 / TICKS_PER_SECOND,
    ))
}

fn peak_of(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_blanks_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0";
        assert_eq!(cpu_of(stat), Some(Duration::from_secs(2)));
    }

    #[test]
    fn the_peak_is_in_kilobytes() {
        assert_eq!(peak_of("Name: x\nVmHWM:\t   12 kB\n"), Some(12 * 1024));
        assert_eq!(peak_of(""), None);
    }
}
