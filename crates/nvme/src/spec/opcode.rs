//! Opcodes. Bits 1:0 are the direction of data: 00 none, 01 host to controller, 10 controller to
//! host (Base 2.0 figure 138).

/// Admin commands (Base 2.0 §5).
#[allow(missing_docs, reason = "the specification's names")]
pub mod admin {
    /// Delete I/O Submission Queue; queues are created and deleted by commands only on buses.
    pub const DELETE_SQ: u8 = 0x00;
    pub const CREATE_SQ: u8 = 0x01;
    pub const DELETE_CQ: u8 = 0x04;
    pub const CREATE_CQ: u8 = 0x05;
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT: u8 = 0x0c;
    /// Creates and deletes namespaces.
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
    /// Attaches namespaces to controllers, or detaches them.
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    pub const KEEP_ALIVE: u8 = 0x18;
    pub const FORMAT: u8 = 0x80;
    /// Fabrics commands, on any queue.
    pub const FABRICS: u8 = 0x7f;
}

/// I/O commands (NVM 1.0 §3, and vendor commands).
#[allow(missing_docs, reason = "the specification's names")]
pub mod io {
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    pub const RESERVATION_REPORT: u8 = 0x0e;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const RESERVATION_RELEASE: u8 = 0x15;
    pub const COPY: u8 = 0x19;
    /// Vendor: remap, to copy or to relocate.
    pub const REMAP: u8 = 0x90;
    /// Vendor: write a page and record its file and position in the file map.
    pub const FS_WRITE: u8 = 0x91;
    /// Vendor: read the list of a file's pages, or the list of files.
    pub const FS_MAP: u8 = 0x92;
    /// Vendor: clear the file map.
    pub const FS_RESET: u8 = 0x94;
}
