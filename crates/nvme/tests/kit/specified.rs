//! Numbers of the specifications, written here once more: a test that took those of the program would accept
//! a wrong one.

/// Log pages (Base 2.0 §5.16.1), and the vendor's.
pub mod lid {
    pub const SUPPORTED: u8 = 0x00;
    pub const ERROR: u8 = 0x01;
    pub const SMART: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const ANA: u8 = 0x0c;
    pub const FEATURES: u8 = 0x12;
    pub const MANAGEMENT: u8 = 0x13;
    pub const DISCOVERY: u8 = 0x70;
    pub const RESERVATION: u8 = 0x80;
    pub const STATISTICS: u8 = 0xc0;
    pub const REGISTRANTS: u8 = 0xc1;
}

/// Structures of Identify (Base 2.0 §5.17.1).
pub mod cns {
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    pub const COMMAND_SET_NAMESPACE: u8 = 0x05;
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub const COMMAND_SET_NAMESPACES: u8 = 0x07;
    pub const INDEPENDENT_NAMESPACE: u8 = 0x08;
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    pub const CONTROLLERS: u8 = 0x13;
    pub const COMMAND_SETS: u8 = 0x1c;
}

/// Why authentication failed (Base 2.0 §8.13.5).
pub mod explanation {
    pub const FAILED: u8 = 0x01;
    pub const NOT_USABLE: u8 = 0x02;
    pub const SECURE_CHANNEL: u8 = 0x03;
    pub const HASH: u8 = 0x04;
    pub const GROUP: u8 = 0x05;
    pub const PAYLOAD: u8 = 0x06;
    pub const MESSAGE: u8 = 0x07;
}

/// Types of fabrics commands (Base 2.0 §6).
pub mod fabrics {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const AUTH_SEND: u8 = 0x05;
    pub const AUTH_RECEIVE: u8 = 0x06;
    pub const DISCONNECT: u8 = 0x08;
}

/// Offsets of properties (Base 2.0 §3.1.3).
pub mod property {
    pub const CAP: u32 = 0x00;
    pub const VS: u32 = 0x08;
    pub const CC: u32 = 0x14;
    pub const CSTS: u32 = 0x1c;
    pub const CRTO: u32 = 0x68;
}

/// Optional commands of `oncs`: reservations.
pub const ONCS_RESERVATIONS: u16 = 1 << 5;
/// Optional admin commands of `oacs`: Format NVM.
pub const OACS_FORMAT: u16 = 1 << 1;

/// Statuses for requests that a well-formed host never sends (Base 2.0 §3.3.3.2).
pub mod status {
    use remap_ssd_nvme::spec::status::Status;

    const fn refusal(kind: u8, code: u8) -> Status {
        Status::new().with_kind(kind).with_code(code).with_dnr(true)
    }

    pub const SGL_LENGTH: Status = refusal(0, 0x0f);
    pub const SGL_TYPE: Status = refusal(0, 0x11);
    pub const SGL_OFFSET: Status = refusal(0, 0x16);
    pub const HOST_ID_FORMAT: Status = refusal(0, 0x18);
    pub const QUEUE_TYPE: Status = refusal(1, 0x85);
    pub const CONNECT_FORMAT: Status = refusal(1, 0x80);
    pub const CONNECT_BUSY: Status = refusal(1, 0x81).with_dnr(false);
    pub const CONNECT_INVALID: Status = refusal(1, 0x82);
    pub const CONNECT_HOST: Status = refusal(1, 0x84);
    pub const NOT_NAMESPACE_SPECIFIC: Status = refusal(1, 0x0f);
    pub const INVALID_LOG_PAGE: Status = refusal(1, 0x09);
    pub const CONTROLLER_LIST: Status = refusal(1, 0x1c);
    pub const ANA_GROUP: Status = refusal(1, 0x24);
    pub const THIN_PROVISIONING: Status = refusal(1, 0x1b);
    pub const NAMESPACE_NUMBERS: Status = refusal(1, 0x16);
    pub const ALREADY_ATTACHED: Status = refusal(1, 0x18);
    pub const NOT_ATTACHED: Status = refusal(1, 0x1a);
}
