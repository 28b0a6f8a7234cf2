//! Configuration space: the function as a PCI host finds it.
//!
//! ```text
//! 00  vendor, device        08  revision, class 01 08 02 (NVM Express)
//! 04  command, status       10  BAR 0, 64 bits, 16 KiB
//! 34  capabilities at 40    40  MSI-X: table in BAR 0 at 2000, pending bits at 3000
//! ```
//! Invariant: only writable bits change. Absent: legacy interrupts, and MSI-X's table, which the
//! virtual machine monitor keeps itself.

/// Size of the configuration space (PCI 3.0 §6.1).
pub(crate) const CONFIG_BYTES: u64 = 256;
/// Size of BAR 0: registers, doorbells and the MSI-X table.
pub(crate) const BAR_BYTES: u64 = 0x4000;
const MSIX_TABLE: u32 = 0x2000;
const MSIX_PENDING: u32 = 0x3000;
/// Interrupt vectors: one for every queue.
pub(crate) const VECTORS: u16 = remap_ssd_nvme::controller::IO_QUEUES_MAX + 1;

/// Identifiers that QEMU reserves for experiments: we have none of our own.
const VENDOR: u16 = 0x1af4;
const DEVICE: u16 = 0x10f0;
const SUBSYSTEM_DEVICE: u16 = 0x1100;
const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const CLASS: usize = 0x09;
const BAR_0: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const INTERRUPT_LINE: usize = 0x3c;
const MSIX: usize = 0x40;

/// Configuration space with a mask of its writable bits.
pub(crate) struct Config {
    bytes: [u8; CONFIG_BYTES as usize],
    writable: [u8; CONFIG_BYTES as usize],
}

impl Default for Config {
    fn default() -> Self {
        let mut new = Self {
            bytes: [0; 256],
            writable: [0; 256],
        };

        new.set(0x00, &VENDOR.to_le_bytes());
        new.set(0x02, &DEVICE.to_le_bytes());

        // Capabilities list present.
        new.set(STATUS, &0x0010u16.to_le_bytes());
        new.set(CLASS, &[0x02, 0x08, 0x01]);

        // A 64-bit BAR takes two registers; the second one's type bits are zero.
        // Memory, 64 bits wide.
        new.set(BAR_0, &4u32.to_le_bytes());

        new.set(SUBSYSTEM, &VENDOR.to_le_bytes());
        new.set(SUBSYSTEM + 2, &SUBSYSTEM_DEVICE.to_le_bytes());

        new.set(CAPABILITIES, &[MSIX as u8]);

        // MSI-X, and no further capability. Its table size is 0's based.
        new.set(MSIX, &[0x11, 0]);
        new.set(MSIX + 2, &(VECTORS - 1).to_le_bytes());
        new.set(MSIX + 4, &MSIX_TABLE.to_le_bytes());
        new.set(MSIX + 8, &MSIX_PENDING.to_le_bytes());

        // Memory space, bus master, interrupts disabled.
        new.allow(COMMAND, &0x0406u16.to_le_bytes());

        // A host writes ones and reads back which of them stay, to size the BAR.
        new.allow(BAR_0, &(!(BAR_BYTES as u32 - 1)).to_le_bytes());
        new.allow(BAR_0 + 4, &u32::MAX.to_le_bytes());
        new.allow(INTERRUPT_LINE, &[0xff]);

        // MSI-X enable, mask all.
        new.allow(MSIX + 2, &0xc000u16.to_le_bytes());

        new
    }
}

impl Config {
    fn set(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }
    fn allow(&mut self, at: usize, bytes: &[u8]) {
        self.writable[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Reads; bytes past the end are zero.
    pub(crate) fn read(&self, offset: u64, to: &mut [u8]) {
        let there = usize::try_from(offset)
            .ok()
            .and_then(|at| self.bytes.get(at..))
            .unwrap_or(&[]);
        let len = there.len().min(to.len());
        to.fill(0);
        to[..len].copy_from_slice(&there[..len]);
    }

    /// Writes the writable bits.
    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        let first = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, byte) in (first.min(self.bytes.len())..self.bytes.len()).zip(from) {
            self.bytes[at] = (self.bytes[at] & !self.writable[at]) | (byte & self.writable[at]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_sizes_the_bar_and_finds_msix() {
        let mut config = Config::default();
        config.write(0x10, &[0xff; 8]);

        let mut bar = [0; 8];
        config.read(0x10, &mut bar);
        assert_eq!(u64::from_le_bytes(bar), !(BAR_BYTES - 1) | 4);

        config.write(0, &[0; 4]);
        let mut head = [0; 4];
        config.read(0, &mut head);
        assert_eq!(
            head,
            [0xf4, 0x1a, 0xf0, 0x10],
            "vendor and device cannot be written"
        );

        config.write(0x42, &[0xff; 2]);
        let mut control = [0; 2];
        config.read(0x42, &mut control);
        assert_eq!(u16::from_le_bytes(control), 0xc000 | (VECTORS - 1));

        // Accesses past the end have no effect.
        config.write(255, &[1; 4]);
        config.read(255, &mut [0; 4]);
        config.read(u64::MAX - 1, &mut [0; 1]);
    }
}
