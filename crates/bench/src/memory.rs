//! Memory of the process.
//!
//! Resident memory as reported by the system: it includes the overhead of allocators and mappings,
//! and huge pages. Absent: the use of the memory.

/// Resident bytes now, if the system reports them.
pub(crate) fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Growth of resident bytes since `before`.
pub(crate) fn grown_since(before: Option<u64>) -> Option<u64> {
    Some(resident_bytes()?.saturating_sub(before?))
}
