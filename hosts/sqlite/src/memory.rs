//! Default memory limit for a volume's cached pages.
//!
//! Stock SQLite uses the system's page cache, which takes free memory. This cache is part of the
//! process, so it takes only a small share of the machine, or of the process's control group limit.
//! It is an upper limit: pages are cached as they are read or written.
//!
//! Absent: releasing memory under pressure.

use remap_ssd_store::volume::CACHE_BYTES_DEFAULT;

/// Fraction of the memory: 1/32.
const SHARE: u64 = 32;
/// Upper limit, however large the machine.
const BYTES_MAX: u64 = 1 << 30;

/// Maximum bytes of cached pages.
pub(crate) fn cache_bytes() -> u64 {
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").unwrap_or_default();
    share_of(&machine, &group)
}

/// Computes the limit from `/proc/meminfo` and the control group's `memory.max`, which is a number
/// or `max`.
fn share_of(machine: &str, group: &str) -> u64 {
    let total = machine
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok())
        .map(|kibibytes| kibibytes << 10);
    let limit = group.trim().parse::<u64>().ok();

    // If neither is known, the default remains.
    let memory = total.into_iter().chain(limit).min().unwrap_or(0);
    (memory / SHARE).clamp(CACHE_BYTES_DEFAULT, BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_machine_or_of_the_control_group_is_kept() {
        let machine = "MemTotal:       25165824 kB\nMemFree:         1000000 kB\n";
        assert_eq!(share_of(machine, "max\n"), 768 << 20);
        assert_eq!(share_of(machine, "8589934592\n"), 256 << 20);
        assert_eq!(share_of(machine, "268435456\n"), 64 << 20, "never less");
        assert_eq!(
            share_of("MemTotal: 1073741824 kB\n", ""),
            1 << 30,
            "never more"
        );
        assert_eq!(share_of("", ""), 64 << 20, "where nobody knows");
    }
}
