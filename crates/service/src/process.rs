//! This process, as operators see it.

/// Resident memory of this process, and its file-backed part, in bytes, on Linux; 0 elsewhere.
pub(crate) fn resident_bytes() -> (u64, u64) {
    // In pages; the second field is resident memory, the third its file-backed and shared part
    // (proc(5)).
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split(' ').skip(1);
    let mut bytes = || {
        let pages = fields.next().and_then(|pages| pages.parse::<u64>().ok());
        pages.unwrap_or(0) * rustix::param::page_size() as u64
    };
    (bytes(), bytes())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_counts_what_is_touched_and_tells_files_from_the_rest() {
        // The program's own code is a mapped file.
        let (before, files) = resident_bytes();
        assert!(
            files > 0 && before > files,
            "{before} with {files} of files"
        );

        let touched = vec![1u8; 64 << 20];
        let (after, _) = resident_bytes();
        assert!(
            after >= 64 << 20,
            "{after} bytes with {} touched",
            touched.len()
        );
    }
}
