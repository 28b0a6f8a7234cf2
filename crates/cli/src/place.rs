//! Where a namespace is: on a device that is served, or on one in a folder.
//!
//! Absent: what is on it.

use crate::failure::Failure;
use remap_ssd_nvme::auth::{Credentials, load_credentials};
use remap_ssd_nvme::tcp::client::{Client, Options};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a namespace is.
#[derive(Clone, Debug, clap::Args)]
pub struct Place {
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
    /// A file of mode 600 with the secret of that host, `DHHC-1:...`, for servers that want hosts to authenticate; behind it
    /// `controller=DHHC-1:...` if the server must prove itself too.
    #[arg(long, value_name = "FILE", conflicts_with = "image")]
    pub secret: Option<PathBuf>,
}

/// What a host needs to know to be let in, if a file with it is named.
///
/// # Errors
/// The file cannot be read, others can read it, or there is no secret in it.
pub fn credentials(secret: Option<&Path>) -> Result<Option<Arc<Credentials>>, Failure> {
    let load = |path: &Path| {
        let known = load_credentials(path).map_err(|error| Failure::about(path.display(), error));
        known.map(Arc::new)
    };
    secret.map(load).transpose()
}

impl Place {
    /// For messages.
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
            credentials: credentials(self.secret.as_deref())?,
            ..Options::default()
        };
        options.hostnqn = self.hostnqn.clone().unwrap_or(options.hostnqn);
        Client::connect(self.name().as_str(), options)
            .map_err(|error| Failure::about(self.name(), error))
    }
}
