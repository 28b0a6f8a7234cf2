//! Get Log Page: builds the whole page, then returns the part requested.

use super::association::Association;
use super::changed::CHANGED_BYTES;
use super::faults::FaultInjector;
use super::host::ERRORS;
use super::portals::Transport;
use super::rights::Need;
use super::statistics;
use super::subsystem::Subsystem;
use crate::spec::command::{LogCdw10, Sqe};
use crate::spec::fabrics::DiscoveryEntry;
use crate::spec::identify::{blank, text};
use crate::spec::join;
use crate::spec::log::{ErrorEntry, Smart, effects, lid, warning};
use crate::spec::opcode::{admin, io};
use crate::spec::reservation::Notification;
use crate::spec::status::Status;
use zerocopy::IntoBytes;

/// Share of spare blocks, in percent, below which a warning is set.
const SPARE_THRESHOLD: u8 = 10;
/// A simulated flash array has a constant temperature: 300 K.
const TEMPERATURE_K: u16 = 300;

/// Number of bytes that a Get Log Page requests.
pub(super) fn bytes_wanted(sqe: &Sqe) -> u64 {
    let low = LogCdw10::from_bits(sqe.cdw10).numdl();
    let dwords = u64::from(low) | u64::from(sqe.cdw11 as u16) << 16;
    (dwords + 1) * 4
}

impl Association {
    pub(super) fn log_page(&self, sqe: &Sqe, out: &mut Vec<u8>) -> Result<(), Status> {
        let cdw10 = LogCdw10::from_bits(sqe.cdw10);
        let wanted = cdw10.lid();
        let (bytes, offset) = (bytes_wanted(sqe) as usize, join(sqe.cdw12, sqe.cdw13));
        if !offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }

        // Rights are checked for existing pages only: others are refused as such below.
        if lids(self.discovery).contains(&wanted) {
            self.rights.check_all(Need::of_log(wanted))?;
        }
        let page = match (wanted, self.discovery) {
            (lid::DISCOVERY, true) => self.discovery_page(),
            (lid::SUPPORTED, _) => supported(self.discovery),
            (lid::ERROR, _) => self.error_page(),
            (lid::SMART, false) => {
                self.whole_controller(sqe.nsid)?;
                self.smart().as_bytes().to_vec()
            }
            (lid::FEATURES, _) => self.state().features.supported(),
            // There is no management interface, so none of its commands is supported.
            (lid::MANAGEMENT, false) => vec![0; 4096],
            (lid::FIRMWARE, false) => firmware(),
            (lid::CHANGED_NAMESPACES, false) => {
                // A refused read does not count.
                let keep_event = cdw10.rae() || offset > CHANGED_BYTES as u64;
                self.state().changed.read(keep_event)
            }
            (lid::ANA, false) if self.transport == Transport::Fabrics => {
                self.ana_page(cdw10.lsp(), cdw10.rae())
            }
            (lid::RESERVATION, false) => {
                self.reservation_page(cdw10.rae() || offset > size_of::<Notification>() as u64)
            }
            (lid::REGISTRANTS, false) if self.transport == Transport::Fabrics => {
                self.registrants_page(sqe.nsid)?
            }
            (lid::EFFECTS, false) => command_effects(self.transport),
            (lid::STATISTICS, false) => statistics::page(&self.subsystem.device()),
            _ => return Err(Status::INVALID_LOG_PAGE),
        };

        // Reading from the end on is allowed, and returns zeroes.
        if offset > page.len() as u64 {
            return Err(Status::INVALID_FIELD);
        }
        let rest = &page[offset as usize..];
        let start = out.len();
        out.extend_from_slice(&rest[..rest.len().min(bytes)]);
        // Zeroes follow the end of a page.
        out.resize(start + bytes, 0);

        // After reading SMART the host has seen the warning: the next one may be reported.
        if wanted == lid::SMART && !cdw10.rae() {
            self.state().unread = false;
        }
        Ok(())
    }

    /// SMART is per controller, not per namespace (LPA bit 0).
    fn whole_controller(&self, nsid: u32) -> Result<(), Status> {
        match nsid {
            0 | 0xffff_ffff => Ok(()),
            nsid if self.namespace(nsid).is_some() => Err(Status::INVALID_FIELD),
            _ => Err(Status::INVALID_NAMESPACE),
        }
    }

    /// SMART, with the warnings for this host's temperature thresholds.
    pub(super) fn smart(&self) -> Smart {
        // Release the lock before using the device: waiting for a turn takes long.
        let (errors, too_warm) = {
            let state = self.state();
            (state.error_count, state.features.warns_at(TEMPERATURE_K))
        };

        let mut smart = smart(&self.subsystem, errors);
        if too_warm {
            smart.critical_warning |= warning::TEMPERATURE;
        }
        smart
    }

    fn error_page(&self) -> Vec<u8> {
        let state = self.state();
        let entries = state
            .errors
            .iter()
            .flat_map(|entry| entry.as_bytes().to_vec());
        let mut page: Vec<u8> = entries.collect();
        page.resize(ERRORS * size_of::<ErrorEntry>(), 0);
        page
    }

    fn discovery_page(&self) -> Vec<u8> {
        let mut page = vec![0; 1024];
        let addresses = self.addresses();
        // Generation 1, a record for each address.
        page[0] = 1;
        page[8..16].copy_from_slice(&(addresses.len() as u64).to_le_bytes());
        let by_tls = self.state().by_tls;

        for (address, portid) in addresses.iter().zip(1..) {
            let mut entry = DiscoveryEntry::tcp(address, self.subsystem.nqn());
            entry.portid = portid;
            let entry = if by_tls { entry.by_tls() } else { entry };
            page.extend_from_slice(entry.as_bytes());
        }
        page
    }
}

/// The supported log pages.
fn lids(discovery: bool) -> &'static [u8] {
    // Hosts read this list first. `log_page` must answer every page listed.
    if discovery {
        &[lid::SUPPORTED, lid::ERROR, lid::FEATURES, lid::DISCOVERY]
    } else {
        &[
            lid::SUPPORTED,
            lid::ERROR,
            lid::SMART,
            lid::FIRMWARE,
            lid::CHANGED_NAMESPACES,
            lid::EFFECTS,
            lid::ANA,
            lid::FEATURES,
            lid::MANAGEMENT,
            lid::RESERVATION,
            lid::STATISTICS,
            lid::REGISTRANTS,
        ]
    }
}

fn supported(discovery: bool) -> Vec<u8> {
    let mut page = vec![0; 1024];
    lids(discovery)
        .iter()
        .for_each(|lid| page[usize::from(*lid) * 4] = 1);
    page
}

fn firmware() -> Vec<u8> {
    let mut page = vec![0; 512];
    page[0] = 1;

    // The revision in slot 1, the active one.
    page[8..16].copy_from_slice(&text::<8>(env!("CARGO_PKG_VERSION")));
    page
}

fn command_effects(transport: Transport) -> Vec<u8> {
    let mut page = vec![0; 4096];
    let mut put =
        |at: usize, value: u32| page[at * 4..at * 4 + 4].copy_from_slice(&value.to_le_bytes());

    for opcode in [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
    ] {
        put(usize::from(opcode), effects::SUPPORTED);
    }

    // It may change the block size of a namespace.
    put(
        usize::from(admin::FORMAT),
        effects::SUPPORTED | effects::CHANGES_BLOCKS | effects::CHANGES_NAMESPACE,
    );
    for opcode in [admin::NAMESPACE_MANAGEMENT, admin::NAMESPACE_ATTACHMENT] {
        put(
            usize::from(opcode),
            effects::SUPPORTED | effects::CHANGES_INVENTORY,
        );
    }

    // Queues of a bus are created by commands, those of a network by connections.
    let of_transport: &[u8] = match transport {
        Transport::Fabrics => &[admin::KEEP_ALIVE],
        Transport::Bus => &[
            admin::DELETE_SQ,
            admin::CREATE_SQ,
            admin::DELETE_CQ,
            admin::CREATE_CQ,
        ],
    };
    for opcode in of_transport {
        put(usize::from(*opcode), effects::SUPPORTED);
    }

    if transport == Transport::Fabrics {
        for opcode in [
            io::RESERVATION_REGISTER,
            io::RESERVATION_REPORT,
            io::RESERVATION_ACQUIRE,
            io::RESERVATION_RELEASE,
        ] {
            put(256 + usize::from(opcode), effects::SUPPORTED);
        }
    }

    for opcode in [
        io::FLUSH,
        io::READ,
        io::COMPARE,
        io::VERIFY,
        io::FS_MAP,
        io::FS_RESET,
    ] {
        put(256 + usize::from(opcode), effects::SUPPORTED);
    }
    for opcode in [
        io::WRITE,
        io::WRITE_ZEROES,
        io::DATASET_MANAGEMENT,
        io::COPY,
        io::REMAP,
        io::FS_WRITE,
    ] {
        put(
            256 + usize::from(opcode),
            effects::SUPPORTED | effects::CHANGES_BLOCKS,
        );
    }
    page
}

/// SMART, from the wear of the flash and the counters.
fn smart(subsystem: &Subsystem, errors: u64) -> Smart {
    let health = subsystem.health();
    let device = subsystem.device();
    let (config, ftl) = (device.config(), device.ftl());

    // Wear is levelled, so the mean is close to the worst block.
    let counts = ftl.media().erase_counts();
    let mean =
        counts.iter().map(|count| u64::from(*count)).sum::<u64>() as f64 / counts.len() as f64;
    // The one that wears out first: the flash, or the sequence numbers.
    let used = (mean / config.flash.endurance as f64).max(ftl.numbers_used());
    let used = (used * 100.0).min(255.0) as u8;

    let bad: u32 = ftl.superblocks().map(|(_, sb)| sb.bad.count_ones()).sum();
    // Pages in excess of the logical ones can replace bad blocks.
    let spare_pages = config.geometry.pages() - config.firmware.lpns;
    let spare_blocks = (spare_pages / config.geometry.pages_per_block()).max(1);
    let spare = 100u32.saturating_sub(bad * 100 / spare_blocks) as u8;

    let mut smart: Smart = blank();
    // Warnings follow the current state, not history: they end when their cause does.
    let low_spare = if spare < SPARE_THRESHOLD {
        warning::SPARE
    } else {
        0
    };
    let is_read_only = ftl.media().broken().is_some()
        || ftl.is_read_only()
        || subsystem
            .fault_injector()
            .is_some_and(FaultInjector::is_read_only);
    smart.critical_warning = low_spare | if is_read_only { warning::READ_ONLY } else { 0 };
    smart.composite_temperature = TEMPERATURE_K;

    (smart.available_spare, smart.available_spare_threshold) = (spare, SPARE_THRESHOLD);
    smart.percentage_used = used;

    // Thousands of 512 bytes, rounded up.
    smart.data_units_read = u128::from(health.sectors_read.div_ceil(1000));
    smart.data_units_written = u128::from(health.sectors_written.div_ceil(1000));
    smart.host_read_commands = health.read_commands.into();
    smart.host_write_commands = health.write_commands.into();
    smart.power_cycles = health.power_cycles.into();
    smart.power_on_hours = u128::from(health.power_on_seconds / 3600);
    smart.unsafe_shutdowns = health.unsafe_shutdowns.into();
    smart.media_errors = health.media_errors.into();
    smart.error_log_entries = errors.into();
    smart
}
