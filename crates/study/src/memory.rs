//! Memory estimate of a comparison, compared with the memory available.
//!
//! Estimated from measurements: tables per page, a scheme's own memory, the NVRAM image, the state
//! of workload and aging. As many runs are concurrent as there are threads; the largest are
//! assumed. Invariant: only a comparison that clearly does not fit is refused: an estimate is no
//! measurement, but being killed near the end of a long run is worse than a refusal. Absent:
//! devices from images, whose size is in the image.

use crate::Error;
use crate::plan::Plan;
use remap_ssd_sim::report::format::bytes;
use remap_ssd_sim::study::RunSpec;
use rustix::process::{Resource, getrlimit};

/// Memory of the process without a run.
const PROGRAM_BYTES: u64 = 10 << 20;

/// Memory needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes of the largest run.
    pub run_bytes: u64,
    /// Runs that are executed at the same time.
    pub side_by_side: usize,
    /// Bytes of the largest concurrent runs together, and the program.
    pub total_bytes: u64,
}

impl Need {
    /// Upper estimate for the runs of a plan.
    pub(crate) fn of(plan: &Plan, threads: u32) -> Self {
        let known = plan.runs.iter().filter_map(RunSpec::memory_bytes);
        let mut runs: Vec<u64> = known.collect();

        // The largest first: in the worst case they run concurrently.
        runs.sort_unstable_by(|a, b| b.cmp(a));

        let side_by_side = threads.min(plan.runs.len() as u32) as usize;
        Self {
            run_bytes: runs.first().copied().unwrap_or(0),
            side_by_side,
            total_bytes: PROGRAM_BYTES + runs.iter().take(side_by_side).sum::<u64>(),
        }
    }

    /// Checks that it fits.
    ///
    /// # Errors
    /// It clearly does not: more than a tenth is missing.
    pub(crate) fn check(&self, available: Option<u64>) -> Result<(), Error> {
        match available {
            // A tenth of tolerance, because it is an estimate.
            Some(available) if self.total_bytes - self.total_bytes / 10 > available => {
                let less = match self.side_by_side {
                    0 | 1 => "a smaller --scale takes less",
                    _ => "a smaller --scale or fewer --threads take less",
                };
                Err(Error::Memory(format!(
                    "this takes about {} of memory ({self}), and {} are available: {less}",
                    bytes(self.total_bytes),
                    bytes(available),
                )))
            }
            _ => Ok(()),
        }
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let run = bytes(self.run_bytes);
        match self.side_by_side {
            0 | 1 => write!(f, "{run} a run"),
            many => write!(f, "up to {run} a run, {many} at a time"),
        }
    }
}

/// Memory available to a new program: the kernel's estimate, within the limits of this process's
/// cgroup and address space.
pub fn available() -> Option<u64> {
    let free = line_bytes("/proc/meminfo", "MemAvailable:")?;
    let limits = [group_bytes(), address_bytes()];
    limits.into_iter().flatten().chain([free]).min()
}

/// The bytes of a line of one of the kernel's files.
fn line_bytes(file: &str, name: &str) -> Option<u64> {
    let whole = std::fs::read_to_string(file).ok()?;
    let line = whole.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// What is left of the limit of this process's address space (`ulimit -v`), if there is one.
fn address_bytes() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    Some(limit.saturating_sub(line_bytes("/proc/self/status", "VmSize:")?))
}

/// Memory left within the limit of this process's cgroup, if any.
fn group_bytes() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    // cgroup version 2: its line begins with `0::`.
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let read = |name: &str| {
        let file = format!("/sys/fs/cgroup{}/{name}", path.trim_end_matches('/'));
        std::fs::read_to_string(file)
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    // `max` means no limit and is not a number. Limits of parent cgroups are not considered.
    Some(read("memory.max")?.saturating_sub(read("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_clearly_does_not_fit_is_refused_and_both_figures_are_said() {
        let need = Need {
            run_bytes: 5 << 30,
            side_by_side: 2,
            total_bytes: 10 << 30,
        };
        assert!(need.check(None).is_ok());
        assert!(need.check(Some(9 << 30)).is_ok(), "an estimate");
        let error = need.check(Some(8 << 30)).unwrap_err();
        assert!(matches!(error, Error::Memory(_)));
        let text = error.to_string();
        assert!(
            text.contains("10.0 GiB") && text.contains("8.00 GiB") && text.contains("2 at a time"),
            "{text}"
        );
    }
}
