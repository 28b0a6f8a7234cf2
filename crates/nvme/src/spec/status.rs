//! Status codes: type in bits 10:8, code in bits 7:0 (Base 2.0 §3.3.3.2), and "do not retry".

use bitfield_struct::bitfield;

/// A status as in completions, without the phase bit.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct Status {
    /// Code of the status, within its type.
    pub code: u8,
    /// Status code type: generic, command specific, media or path.
    #[bits(3)]
    pub kind: u8,
    #[bits(2)]
    pub(crate) retry_delay: u8,
    /// More information in the error log.
    pub more: bool,
    /// True if the same command would fail again.
    pub dnr: bool,
    __: bool,
}

const fn generic(code: u8) -> Status {
    Status::new().with_code(code).with_dnr(true)
}
const fn specific(code: u8) -> Status {
    Status::new().with_code(code).with_kind(1).with_dnr(true)
}
const fn media(code: u8) -> Status {
    Status::new().with_code(code).with_kind(2).with_dnr(true)
}

impl Status {
    pub const SUCCESS: Self = Self::new();
    pub const INVALID_OPCODE: Self = generic(0x01);
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = generic(0x02);
    pub const ID_CONFLICT: Self = generic(0x03);
    pub const DATA_TRANSFER: Self = generic(0x04);
    /// Commands Aborted due to Power Loss Notification: the command has not completed, and its
    /// effect may be lost.
    pub const POWER_LOSS: Self = generic(0x05).with_dnr(false);
    /// Internal Error; a retry may help.
    pub const INTERNAL: Self = generic(0x06).with_dnr(false);
    /// Command Aborted due to SQ Deletion: its queue is gone.
    pub(crate) const QUEUE_GONE: Self = generic(0x08).with_dnr(false);
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE: Self = generic(0x0b);
    pub const SEQUENCE: Self = generic(0x0c);
    /// Data SGL Length Invalid.
    pub(crate) const SGL_LENGTH: Self = generic(0x0f);
    /// SGL Descriptor Type Invalid.
    pub(crate) const SGL_TYPE: Self = generic(0x11);
    /// Operation Denied: the host lacks the rights.
    pub const OPERATION_DENIED: Self = generic(0x15);
    pub const PRP_OFFSET: Self = generic(0x13);
    pub(crate) const SGL_OFFSET: Self = generic(0x16);
    /// Transient Transport Error: the data were damaged in transit; a retry may help.
    pub const TRANSIENT_TRANSPORT: Self = generic(0x22).with_dnr(false);
    /// Host Identifier Inconsistent Format: 8 bytes instead of 16.
    pub(crate) const HOST_ID_FORMAT: Self = generic(0x18);
    /// Command Interrupted: out of memory for it now; the host may retry.
    pub const INTERRUPTED: Self = generic(0x21).with_dnr(false);
    /// Format in Progress: the namespace is being emptied.
    pub const FORMAT_IN_PROGRESS: Self = generic(0x84).with_dnr(false);
    /// LBA Out of Range.
    pub const LBA_RANGE: Self = generic(0x80);
    /// Capacity Exceeded: a thin-provisioned namespace has no room left.
    pub const CAPACITY_EXCEEDED: Self = generic(0x81);
    /// Namespace is Write Protected: the host has read-only access, or the device is worn out and
    /// read-only.
    pub const WRITE_PROTECTED: Self = generic(0x20);
    /// Another host holds a reservation, or this one is not registered.
    pub const RESERVATION_CONFLICT: Self = generic(0x83);
    pub const COMPLETION_QUEUE: Self = specific(0x00);
    pub const QUEUE_IDENTIFIER: Self = specific(0x01);
    pub const QUEUE_SIZE: Self = specific(0x02);
    /// Asynchronous Event Request Limit Exceeded.
    pub(crate) const ASYNC_EVENT_LIMIT: Self = specific(0x05);
    pub const INTERRUPT_VECTOR: Self = specific(0x08);
    pub const QUEUE_DELETION: Self = specific(0x0c);
    pub(crate) const INVALID_LOG_PAGE: Self = specific(0x09);
    pub const INVALID_FORMAT: Self = specific(0x0a);
    pub(crate) const NOT_SAVEABLE: Self = specific(0x0d);
    /// Feature Not Namespace Specific.
    pub(crate) const NOT_NAMESPACE_SPECIFIC: Self = specific(0x0f);
    /// Namespace Insufficient Capacity: no free range is large enough.
    pub const NAMESPACE_CAPACITY: Self = specific(0x15);
    /// Namespace Identifier Unavailable: all numbers are in use.
    pub(crate) const NAMESPACE_NUMBERS: Self = specific(0x16);
    pub(crate) const ALREADY_ATTACHED: Self = specific(0x18);
    pub(crate) const NOT_ATTACHED: Self = specific(0x1a);
    /// Thin Provisioning Not Supported: capacity must equal size.
    pub(crate) const THIN_PROVISIONING: Self = specific(0x1b);
    /// Controller List Invalid.
    pub(crate) const CONTROLLER_LIST: Self = specific(0x1c);
    /// ANA Group Identifier Invalid.
    pub(crate) const ANA_GROUP: Self = specific(0x24);
    /// I/O Command Set Not Supported.
    pub(crate) const COMMAND_SET: Self = specific(0x29);
    pub(crate) const CONNECT_FORMAT: Self = specific(0x80);
    pub(crate) const CONNECT_BUSY: Self = specific(0x81).with_dnr(false);
    /// Fabrics: Connect Invalid Parameters.
    pub(crate) const CONNECT_INVALID: Self = specific(0x82);
    /// Fabrics: Connect Invalid Host.
    pub(crate) const CONNECT_HOST: Self = specific(0x84);
    /// Fabrics: Invalid Queue Type.
    pub(crate) const QUEUE_TYPE: Self = specific(0x85);
    pub const AUTH_REQUIRED: Self = specific(0x91);
    /// NVM: Command Size Limit Exceeded (Copy).
    pub const SIZE_LIMIT: Self = specific(0x83);
    /// Vendor: the device cannot execute the command atomically, or not at this size.
    pub const NOT_ATOMIC: Self = specific(0xc0);
    /// Vendor: the data are written, but the file map is full or damaged and does not list them.
    pub const NOT_LISTED: Self = specific(0xc1);
    /// Vendor: the device has no file map.
    pub const NO_FILE_MAP: Self = specific(0xc2);
    pub const WRITE_FAULT: Self = media(0x80);
    pub const UNRECOVERED_READ: Self = media(0x81);
    pub const COMPARE_FAILURE: Self = media(0x85);

    /// Asymmetric Access Inaccessible: by this portal; another one may work.
    pub const ACCESS_INACCESSIBLE: Self = Self::new().with_code(0x02).with_kind(3);

    pub fn is_success(self) -> bool {
        self.code() == 0 && self.kind() == 0
    }

    /// Type and code as one number, as printed by tools.
    pub fn number(self) -> u16 {
        u16::from(self.kind()) << 8 | u16::from(self.code())
    }
}
