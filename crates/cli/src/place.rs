//! The place of a namespace: on a served device, or on one in a folder.
//!
//! Absent: its contents.

use crate::failure::Failure;
use remap_ssd_nvme::auth::HostKeys;
use remap_ssd_nvme::tcp::client::{Client, Options};
use remap_ssd_store::{ImageDisk, StoreError};
use std::fmt::Display;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Address of a namespace: its server or image, and its number.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct NamespacePlace {
    /// Address of the server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:4420")]
    pub connect: String,
    /// Folder of a device that no server has open.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["connect", "nqn", "hostnqn", "secret"])]
    pub image: Option<PathBuf>,
    /// Number of the namespace.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nsid: u32,
    /// The subsystem, and the identity there.
    #[command(flatten)]
    pub host: HostArgs,
}

/// How a host connects to a server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct HostArgs {
    /// NQN of the subsystem [default: the first one that discovery returns].
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<String>,
    /// NQN to connect with, for servers that admit only known hosts.
    #[arg(long, value_name = "NQN")]
    pub hostnqn: Option<String>,
    /// A file of mode 600 with that host's keys, as the server has them: `NVMeTLSkey-1:...` to
    /// connect with TLS, `DHHC-1:...` to authenticate, or both; after a secret,
    /// `controller=DHHC-1:...` if the server must prove itself too.
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
}

impl HostArgs {
    /// Options of a connection, with the host's keys.
    ///
    /// # Errors
    /// The file of keys cannot be read, others can read it, or there are no keys in it.
    pub(crate) fn options(&self) -> Result<Options, Failure> {
        let keys = self.secret.as_deref().map(|path| {
            HostKeys::load(path).map_err(|error| Failure::about(path.display(), error))
        });
        // The client's default name is used unless another is given.
        let default = Options::default();
        let options = Options {
            subnqn: self.nqn.clone(),
            hostnqn: self.hostnqn.clone().unwrap_or(default.hostnqn.clone()),
            ..default
        };
        Ok(options.with_keys(keys.transpose()?.unwrap_or_default()))
    }
}

/// Reads a file, or standard input for `-`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut data = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin().lock().read_to_end(&mut data)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut data))
    };
    read.map_err(|error| Failure::about(path.display(), error))?;
    Ok(data)
}

/// Error of an image, which may not be there.
pub(crate) fn no_image(dir: &Path, why: impl Display) -> Failure {
    let hint = match dir.exists() {
        true => "",
        false => "; `remap-ssd image create` makes an image",
    };
    Failure::about(dir.display(), format_args!("{why}{hint}"))
}

impl NamespacePlace {
    /// Name of the place in messages.
    pub(crate) fn name(&self) -> String {
        match &self.image {
            Some(dir) => dir.display().to_string(),
            None => self.connect.clone(),
        }
    }

    /// The namespace as a disk of an image, if it is in a folder.
    ///
    /// # Errors
    /// There is no image in the folder, or it cannot be opened.
    pub(crate) fn open_image(&self) -> Result<Option<ImageDisk>, Failure> {
        let open =
            |dir: &PathBuf| ImageDisk::open(dir, self.nsid).map_err(|why| no_image(dir, why));
        self.image.as_ref().map(open).transpose()
    }

    /// Error of a volume here.
    pub(crate) fn about_store(&self, error: StoreError) -> Failure {
        let hint = match error {
            StoreError::NoVolume(_) => "; `remap-ssd volume create` makes one",
            _ => "",
        };
        Failure::about(self.name(), format_args!("{error}{hint}"))
    }

    /// Connects to the server.
    ///
    /// # Errors
    /// It cannot be reached, or refuses.
    pub(crate) fn connect(&self) -> Result<Client, Failure> {
        let options = Options {
            nsid: self.nsid,
            ..self.host.options()?
        };
        Client::connect(self.name().as_str(), options)
            .map_err(|error| Failure::about(self.name(), error))
    }
}
