//! The way to a served device, for programs that open a database for each request.
//!
//! A device is asked its name by discovery, which is a connection of its own. What it answered is
//! remembered by this process: a device of that name is asked for first, and discovery asked again
//! if there is none. A connection is made as the holder that is going to have the volume, since
//! another one could not become it. So an opening takes two connections, the first one three.
//!
//! Absent: which volume it is, and who may have it (the store).

use crate::forked::PerProcess;
use remap_ssd_nvme::tcp::client::{Client, ClientError, Options};
use remap_ssd_store::new_holder;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Names that are remembered. Programs use few devices.
const NAMES_MAX: usize = 64;

/// Where a device was asked for, and by whom: rights decide what discovery says.
type Asked = (String, String);

static NAMES: PerProcess<Mutex<HashMap<Asked, String>>> = PerProcess::new();

/// Connects to a device at HOST:PORT; `subnqn` in the options is its name, if that is known.
pub fn connect(address: &str, options: Options) -> Result<Client, ClientError> {
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
            // The server does not answer to the name any more, or has no key for it.
            Err(error) if is_answered(&error) => forget(&asked),
            connected => return connected,
        }
    }

    let client = as_holder(None)?;
    remember(asked, client.subnqn());
    Ok(client)
}

/// Whether a server is there, whatever it does with us.
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
