//! `key`: a new key for `serve --keys`.
//!
//! Absent: the forms of keys (`remap_ssd_nvme::auth`), and files of them.

use crate::failure::Failure;
use crate::output;
use remap_ssd_nvme::auth::{Secret, TlsKey};

/// Prints a new random key for `serve --keys`, as `nvme gen-dhchap-key` and `nvme gen-tls-key` do.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// A key for TLS (`NVMeTLSkey-1:...`), instead of a secret for DH-HMAC-CHAP (`DHHC-1:...`).
    #[arg(long)]
    pub tls: bool,
}

const EXAMPLES: &str = "\
Examples:
  (umask 077; echo \"nqn.2026-11.com.example:db1 $(remap-ssd key)\" > keys)
  remap-ssd serve --image disk --listen 0.0.0.0:4420 --keys keys
  remap-ssd key --tls";

/// Runs `key`.
///
/// # Errors
/// Standard output cannot be written.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let key = match args.tls {
        true => TlsKey::random().reveal(),
        false => Secret::random().reveal(),
    };
    output::text(&format!("{}\n", *key))
}
