//! NVMe/TCP.
