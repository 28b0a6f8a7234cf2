//! Energy of the flash, from the number of its operations.
//!
//! Absent: everything that is not flash, and what a device takes without doing anything.

use crate::summary::Energy;
use remap_ssd_device::EnergyConfig;
use remap_ssd_media::geometry::PAGE_BYTES;

/// The energy of the given numbers of page reads, page programs and block erases, for `transfers` pages of the host.
/// `crossings` pages crossed a channel.
/// `None` if no operation's energy is known.
pub(crate) fn energy(
    of: &EnergyConfig,
    [reads, programs, erases]: [u64; 3],
    crossings: u64,
    transfers: u64,
) -> Option<Energy> {
    if *of == EnergyConfig::default() {
        return None;
    }

    let joules = |count: u64, nj: u64| count as f64 * nj as f64 / 1e9;
    let sum = joules(reads, of.read_nj)
        + joules(programs, of.program_nj)
        + joules(erases, of.erase_nj)
        + joules(crossings, of.transfer_nj);

    let gib = transfers as f64 * PAGE_BYTES as f64 / (1u64 << 30) as f64;
    Some(Energy {
        joules: sum,
        joules_per_gib: sum / gib,
    })
}

/// Pages that crossed a channel: those of a program `two_step` did so for both steps, those of copybacks never.
pub(crate) fn crossings(reads: u64, programs: u64, copybacks: u64, two_step: bool) -> u64 {
    let steps = 1 + u64::from(two_step);
    reads - copybacks + steps * (programs - copybacks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn energy_is_the_sum_over_all_operations() {
        let of = EnergyConfig {
            read_nj: 10_000,
            program_nj: 50_000,
            erase_nj: 2_000_000,
            transfer_nj: 1_000,
        };
        let found = |copybacks, two_step| {
            let crossings = crossings(3_000, 2_000, copybacks, two_step);
            energy(&of, [3_000, 2_000, 10], crossings, 1 << 17).unwrap()
        };

        let all = found(0, false);
        // 0.03 + 0.1 + 0.02 + 0.005 J, for half a GiB.
        assert!((all.joules - 0.155).abs() < 1e-12, "{all:?}");
        assert!((all.joules_per_gib - 0.31).abs() < 1e-12, "{all:?}");

        // 50 copies less that cross the channel, as reads and as programs.
        let less = found(50, false);
        assert!((all.joules - less.joules - 1e-4).abs() < 1e-12, "{less:?}");

        // 2,000 pages cross it once more.
        let more = found(0, true);
        assert!((more.joules - all.joules - 2e-3).abs() < 1e-12, "{more:?}");
        assert_eq!(energy(&EnergyConfig::default(), [1, 1, 1], 2, 1), None);
    }
}
