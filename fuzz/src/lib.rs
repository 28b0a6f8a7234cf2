//! What arbitrary bytes are fed to, and a mutator that does without libFuzzer.
//!
//! - [`file()`]: a device image as it lies in a file. Nearly every mutation is refused by its hash.
//! - [`recover`]: an image unpacked and sealed again after mutation, so that recovery sees hostile
//!   media whose file is in order. What does recover, and agrees with itself, is then used, powered
//!   off and recovered once more.
//! - [`trace`]: a trace in any format, compressed or not.
//! - [`auth::auth`]: what hosts send to authenticate.
//! - [`tls::tls`]: what strangers send before they are known.
//! - [`keys::keys`], [`keys::rights`]: a file of keys, and what a host may do.
//! - [`nvme::pdu`], [`nvme::command`], [`nvme::session`]: what hosts send over NVMe/TCP.
//!
//! Each returns or the bytes are a finding: a panic, an endless loop, memory without bound. Absent:
//! what is right; the power-cut campaign knows that.

pub mod auth;
pub mod corpus;
pub mod keys;
pub mod mutate;
pub mod nvme;
pub mod seal;
pub mod sessions;
pub mod tls;

use remap_ssd_device::DeviceConfig;
use remap_ssd_ftl::{FilePage, Ftl, Lpn, Remap};
use remap_ssd_media::{ContentMode, Image, Media, Payload, image_file};
use remap_ssd_sim::source::Source;
use remap_ssd_sim::trace::{Fold, TraceOptions, TraceReader};
use std::io::Write;

/// Bytes that an image may unpack to.
pub const LIMIT: u64 = 64 << 20;
/// Records of a trace that are read at most.
const PAGES_MAX: usize = 1 << 16;

/// An image file of these bytes.
pub fn file(bytes: &[u8]) {
    if let Ok((image, config)) = image_file::read(bytes, LIMIT) {
        power_on(&image, &config);
    }
}

/// An image file whose unpacked bytes are these, with the hash that belongs to them.
pub fn recover(unpacked: &[u8]) {
    if let Some(file_bytes) = seal::seal(unpacked) {
        file(&file_bytes);
    }
}

/// Powers a device on, with the configuration that came with it, uses it, and powers it on again.
fn power_on(image: &Image, config: &[u8]) {
    let Ok(text) = std::str::from_utf8(config) else {
        return;
    };

    let Ok(config) = DeviceConfig::from_toml(text) else {
        return;
    };

    if config.geometry != image.geometry() || config.content != image.mode() {
        return;
    }

    let Ok((ftl, _)) = Ftl::recover(Media::from_image(image), config.firmware.clone()) else {
        return;
    };

    // Media that contradict themselves in ways that no power cut leaves are refused when an image
    // is loaded.
    if ftl.check().is_err() {
        return;
    }

    let media = used(ftl);
    if let Ok((ftl, _)) = Ftl::recover(media, config.firmware) {
        sound(&ftl, "after a second recovery");
    }
}

pub(crate) fn sound(ftl: &Ftl, when: &str) {
    if let Err(text) = ftl.check() {
        panic!("the tables disagree {when}: {text}");
    }
}

/// A little of everything; refusals are answers.
fn used(mut ftl: Ftl) -> Media {
    ftl.media_mut().ops.clear();
    let lpns = ftl.config().lpns;
    let mode = ftl.media().mode();

    for step in 0..lpns.min(400) {
        let (lpn, other) = (step * 7 % lpns, lpns - 1 - step * 7 % lpns);
        let (first, other) = (Lpn(lpn), Lpn(other));
        let page = [step as u8; 4096];

        let content = match mode {
            ContentMode::Bytes => Payload::Bytes(&page),
            _ => Payload::Identity(u64::from(step % 50) + 1),
        };

        let _ = ftl.write(first, &content);
        let _ = ftl.read(other);
        let _ = ftl.fs_write(
            other,
            &content,
            FilePage {
                inode: step % 4,
                offset: step,
            },
        );

        let _ = ftl.fs_map(step % 4);

        let len = 3.min(lpns - lpn);
        let source = Lpn(lpn / 2);
        let relocate = step % 3 == 0;
        let _ = ftl.remap(&Remap {
            target: first,
            source,
            len,
            relocate,
            atomic: step % 5 == 0,
        });

        if step % 4 == 0 {
            let _ = ftl.deallocate(first, len);
        }

        ftl.background();
        ftl.media_mut().ops.clear();
    }

    sound(&ftl, "after use");
    ftl.into_media()
}

/// A trace file of these bytes.
pub fn trace(bytes: &[u8]) {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    file.write_all(bytes).expect("and written");

    for (addressable, fold, skip_bad) in
        [(1000, Fold::Modulo, true), (1 << 20, Fold::Compact, false)]
    {
        let options = TraceOptions {
            fold,
            skip_bad,
            ..TraceOptions::new(addressable)
        };

        let Ok(mut reader) = TraceReader::open(file.path(), None, options) else {
            continue;
        };

        let mut pages = Vec::new();
        let mut read = 0;
        let mut now = 0;
        while read < PAGES_MAX {
            pages.clear();

            match reader.fill(&mut pages, 256) {
                Ok(true) => {}
                Ok(false) | Err(_) => break,
            }

            for page in &pages {
                assert!(
                    page.lpn.get() < addressable && page.at_ns >= now,
                    "{page:?}"
                );
                now = page.at_ns;
            }

            assert!(
                pages.last().is_some_and(|page| page.last),
                "requests are never split"
            );

            read += pages.len();
        }
    }
}
