//! How much memory the process holds.
//!
//! Resident memory as the system counts it: it sees what allocators and mappings really take, huge
//! pages and all. Absent: what the memory is for.

/// Bytes resident now, where the system says so.
pub fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Bytes that have become resident since `before`.
pub fn grown_since(before: Option<u64>) -> Option<u64> {
    Some(resident_bytes()?.saturating_sub(before?))
}
