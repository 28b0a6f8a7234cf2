//! Registers and queues of a controller on PCI Express (Base 2.0 §3.1.3, NVMe over PCIe 1.0 §3.1).

use super::command::Sqe;
use bitfield_struct::bitfield;
use zerocopy::IntoBytes;

/// Offsets of registers that are not fabrics properties.
pub mod register {
    /// Offset of the attributes of the admin queues.
    pub const AQA: u32 = 0x24;
    /// Admin submission queue, 8 bytes.
    pub const ASQ: u32 = 0x28;
    /// Admin completion queue, 8 bytes.
    pub const ACQ: u32 = 0x30;
    /// The first doorbell; 4 bytes each, submission and completion queues alternating.
    pub const DOORBELLS: u32 = 0x1000;
}

/// The attributes of the admin queues.
#[bitfield(u32)]
pub struct Aqa {
    /// Submission queue entries, 0's based.
    #[bits(12)]
    pub asqs_z: u16,
    #[bits(4)]
    __: u8,
    /// Completion queue entries, 0's based.
    #[bits(12)]
    pub acqs_z: u16,
    #[bits(4)]
    __: u8,
}

/// Dword 10 of Create and Delete I/O Queue.
#[bitfield(u32)]
pub struct QueueCdw10 {
    /// Number of the queue to create.
    pub qid: u16,
    pub qsize_z: u16,
}

/// Dword 11 of Create I/O Completion Queue.
#[bitfield(u32)]
pub struct CreateCqCdw11 {
    /// True if its memory is contiguous.
    pub pc: bool,
    /// True if its completions raise interrupts.
    pub ien: bool,
    #[bits(14)]
    __: u16,
    /// The interrupt vector that they raise.
    pub iv: u16,
}

/// Dword 11 of Create I/O Submission Queue.
#[bitfield(u32)]
pub struct CreateSqCdw11 {
    /// True if its memory is contiguous.
    pub pc: bool,
    #[bits(2)]
    pub(crate) qprio: u8,
    #[bits(13)]
    __: u16,
    /// Number of the completion queue that it belongs to.
    pub cqid: u16,
}

impl Sqe {
    /// The two PRP entries, dwords 6 to 9.
    pub fn prps(&self) -> [u64; 2] {
        let bytes = self.as_bytes();
        [24, 32].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")))
    }
}
