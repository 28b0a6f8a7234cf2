//! The place of a namespace: on a served device, or on one in a folder.
//!
//! Absent: its contents.

use crate::failure::Failure;
use remap_ssd_nvme::auth::HostKeys;
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::path::{Path, PathBuf};

/// Address of a namespace: its server or image, and its number.
#[derive(Clone, Debug, clap::Args)]
pub struct NamespacePlace {
    /// Address of the server.
    #[arg(
        long,
        value_name = "HOST:PORT",
        required_unless_present = "image",
        conflicts_with = "image"
    )]
    pub connect: Option<String>,
    /// Folder of a device that no server has open.
    #[arg(long, value_name = "FOLDER")]
    pub image: Option<PathBuf>,
    /// Number of the namespace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nsid: u32,
    /// NQN of the subsystem; by default the first one that discovery returns.
    #[arg(long, value_name = "NQN", conflicts_with = "image")]
    pub nqn: Option<String>,
    /// NQN to connect with, for servers that admit only known hosts.
    #[arg(long, value_name = "NQN", conflicts_with = "image")]
    pub hostnqn: Option<String>,
    /// A file of mode 600 with that host's keys, as the server has them: `NVMeTLSkey-1:...` to
    /// connect with TLS, `DHHC-1:...` to authenticate, or both; after a secret,
    /// `controller=DHHC-1:...` if the server must prove itself too.
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    pub secret: Option<PathBuf>,
}

/// Loads a host's keys, if a file is given.
///
/// # Errors
/// The file cannot be read, others can read it, or there are no keys in it.
pub fn host_keys(secret: Option<&Path>) -> Result<HostKeys, Failure> {
    let load =
        |path: &Path| HostKeys::load(path).map_err(|error| Failure::about(path.display(), error));
    Ok(secret.map(load).transpose()?.unwrap_or_default())
}

impl NamespacePlace {
    /// Name of the place in messages.
    pub fn name(&self) -> String {
        match (&self.connect, &self.image) {
            (Some(address), _) => address.clone(),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => String::new(),
        }
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub fn connect(&self) -> Result<Client, Failure> {
        let mut options = Options {
            subnqn: self.nqn.clone(),
            nsid: self.nsid,
            ..Options::default()
        }
        .with_keys(host_keys(self.secret.as_deref())?);
        // The client's default name is used unless another is given.
        options.hostnqn = self.hostnqn.clone().unwrap_or(options.hostnqn);
        Client::connect(self.name().as_str(), options)
            .map_err(|error| Failure::about(self.name(), error))
    }
}
