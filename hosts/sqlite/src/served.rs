//! Connections to a served device, for programs that open a database per request.
//!
//! The name of a device is found by discovery, which takes a connection of its own. The process
//! caches the name: it tries that name first, and repeats discovery if no such device answers. A
//! connection is made as the holder of the volume to be opened, since a connection cannot change
//! its holder later. So an opening takes two connections, the first one three.
//!
//! Absent: selection of the volume, and access control (the store).

use crate::forked::PerProcess;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use remap_ssd_store::new_holder;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of cached names. Programs use few devices.
const NAMES_MAX: usize = 64;

/// Address and host name: discovery results depend on access rights.
type Asked = (String, String);

static NAMES: PerProcess<Mutex<HashMap<Asked, String>>> = PerProcess::new();

/// Connects to a device at HOST:PORT; `subnqn` in the options is its name, if known.
pub(crate) fn connect(address: &str, options: Options) -> Result<Client, ClientError> {
    let as_holder = |subnqn: Option<String>| {
        let holder = Some(new_holder());
        let options = Options {
            subnqn,
            holder,
            ..options.clone()
        };
        Client::connect(address, options)
    };
    if options.subnqn.is_some() {
        return as_holder(options.subnqn.clone());
    }

    let asked = (address.to_owned(), options.hostnqn.clone());
    if let Some(name) = remembered(&asked) {
        match as_holder(Some(name)) {
            // The server does not serve this name any more, or has no key for it.
            Err(error) if is_answered(&error) => forget(&asked),
            connected => return connected,
        }
    }

    let client = as_holder(None)?;
    remember(asked, client.subnqn());
    Ok(client)
}

/// Returns true if the server answered, even with an error.
fn is_answered(error: &ClientError) -> bool {
    use std::io::ErrorKind::{ConnectionRefused, TimedOut, WouldBlock};
    let ClientError::Io(error) = error else {
        return true;
    };
    !matches!(error.kind(), ConnectionRefused | TimedOut | WouldBlock)
}

fn remembered(asked: &Asked) -> Option<String> {
    let names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    names.get(asked).cloned()
}

fn remember(asked: Asked, name: &str) {
    let mut names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    if names.len() >= NAMES_MAX {
        names.clear();
    }
    names.insert(asked, name.to_owned());
}

fn forget(asked: &Asked) {
    let mut names = NAMES.get().lock().unwrap_or_else(PoisonError::into_inner);
    names.remove(asked);
}
