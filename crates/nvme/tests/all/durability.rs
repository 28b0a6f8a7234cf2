//! Durability of acknowledged commands, in a folder that a crash of the machine would leave as last
//! synced; and the effect of commands on other blocks of a page.

use remap_ssd_device::{Device, DeviceConfig, Lpn};
use remap_ssd_ftl::{FilePage, Remap, SchemeKind};
use remap_ssd_nvme::controller::{
    Blocks, InMemory, IoCommand, IoRequest, Issuer, NamespaceSpec, Outcome, RemapBlocks, Subsystem,
};
use remap_ssd_nvme::spec::status::Status;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

const BLOCK: usize = 512;
/// Blocks per page.
const PAGE_BLOCKS: u64 = 8;

struct Host {
    subsystem: Subsystem,
    cache_enabled: bool,
    _dir: TempDir,
}

impl Host {
    /// Two namespaces of 512-byte blocks; acknowledged writes may stay in the machine's cache until
    /// a flush.
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let mut config =
            DeviceConfig::for_service(16 << 20, SchemeKind::RemapSsd, false).expect("possible");
        (config.firmware.fs_files, config.firmware.fs_blocks) = (4, 16);
        let device = Device::create_in_folder(&dir.path().join("device"), config, None)
            .expect("room for it");
        let spec = NamespaceSpec {
            pages: 1000,
            lba_shift: 9,
        };
        let nqn = "nqn.2026-11.test:durability";
        let subsystem = Subsystem::new(device, nqn, &[spec; 2]);
        Self {
            subsystem: subsystem.expect("possible"),
            cache_enabled: true,
            _dir: dir,
        }
    }

    fn execute(&self, nsid: u32, request: &IoRequest, from_host: &[u8]) -> (Outcome, Vec<u8>) {
        let mut to_host = Vec::new();
        let mut data = InMemory {
            from_host,
            to_host: &mut to_host,
        };
        let issuer = Issuer {
            write_through: &AtomicBool::new(!self.cache_enabled),
            ..Issuer::service()
        };
        let namespace = self.subsystem.namespace(nsid).expect("it exists");
        let command = IoCommand::new(*request, &namespace);
        let mut turn = self.subsystem.device();
        let outcome = self
            .subsystem
            .execute(&mut turn, &command, &issuer, 0, &mut data);
        drop(turn);
        (self.subsystem.wait_until_durable(outcome), to_host)
    }

    fn ends(&self, nsid: u32, request: &IoRequest, from_host: &[u8]) -> Status {
        self.execute(nsid, request, from_host).0.status
    }

    fn read(&self, nsid: u32, slba: u64, count: u32) -> Vec<u8> {
        let (outcome, data) = self.execute(
            nsid,
            &IoRequest::Read {
                blocks: Blocks { slba, count },
                fua: false,
            },
            &[],
        );
        assert_eq!(outcome.status, Status::SUCCESS);
        data
    }

    fn write(&self, nsid: u32, slba: u64, blocks: &[u8]) {
        let count = (blocks.len() / BLOCK) as u32;
        let write = IoRequest::Write {
            blocks: Blocks { slba, count },
            fua: false,
        };
        assert_eq!(self.ends(nsid, &write, blocks), Status::SUCCESS);
    }

    fn syncs(&self) -> u64 {
        self.subsystem.device().ftl().media().syncs()
    }
}

/// Blocks with distinct content.
fn numbered(from: u8, blocks: u8) -> Vec<u8> {
    (0..blocks)
        .flat_map(|block| [from + block; BLOCK])
        .collect()
}

#[test]
fn a_flush_and_a_forced_command_reach_the_disk_and_others_need_not() {
    let mut host = Host::new();
    let blocks = Blocks { slba: 0, count: 8 };
    let data = numbered(1, 8);
    let commands = |fua| {
        [
            // Each changes something: otherwise there would be nothing to make durable.
            (IoRequest::Write { blocks, fua }, &data[..]),
            (
                IoRequest::Remap {
                    pages: Remap {
                        target: Lpn(2),
                        source: Lpn(0),
                        len: 1,
                        relocate: false,
                        atomic: false,
                    },
                    fua,
                },
                &[][..],
            ),
            (IoRequest::WriteZeroes { blocks, fua }, &[]),
        ]
    };
    for (request, data) in commands(false) {
        let before = host.syncs();
        assert_eq!(
            (host.ends(1, &request, data), host.syncs()),
            (Status::SUCCESS, before),
            "{request:?}"
        );
        assert_eq!(host.ends(1, &IoRequest::Flush, &[]), Status::SUCCESS);
        assert_eq!(host.syncs(), before + 1, "a flush of {request:?}");
    }
    for (request, data) in commands(true) {
        let before = host.syncs();
        assert_eq!(
            (host.ends(1, &request, data), host.syncs()),
            (Status::SUCCESS, before + 1),
            "{request:?}"
        );
    }
    // Without a cache every command is forced.
    host.cache_enabled = false;
    for (request, data) in commands(false) {
        let before = host.syncs();
        assert_eq!(
            (host.ends(1, &request, data), host.syncs()),
            (Status::SUCCESS, before + 1),
            "{request:?}"
        );
    }
}

#[test]
fn a_block_may_be_written_or_zeroed_without_its_neighbours() {
    let host = Host::new();
    host.write(1, 0, &numbered(1, 24));
    host.write(1, 3, &numbered(100, 2));
    host.write(1, 14, &numbered(110, 4));
    let mut wanted = numbered(1, 24);
    wanted[3 * BLOCK..5 * BLOCK].copy_from_slice(&numbered(100, 2));
    wanted[14 * BLOCK..18 * BLOCK].copy_from_slice(&numbered(110, 4));
    assert!(host.read(1, 0, 24) == wanted);
    // Zeroes over the end of one page, a whole one, and the beginning of the next.
    let zeroes = IoRequest::WriteZeroes {
        blocks: Blocks { slba: 6, count: 12 },
        fua: false,
    };
    assert_eq!(host.ends(1, &zeroes, &[]), Status::SUCCESS);
    wanted[6 * BLOCK..18 * BLOCK].fill(0);
    assert!(host.read(1, 0, 24) == wanted);
}

#[test]
fn namespaces_end_where_they_end() {
    let host = Host::new();
    let last = 1000 * PAGE_BLOCKS - 1;
    let blocks = |slba, count| {
        host.subsystem
            .namespace(1)
            .expect("there are two")
            .blocks(slba, count)
    };
    assert!(blocks(last, 1).is_ok() && blocks(0, last as u32 + 1).is_ok());
    assert_eq!(blocks(last, 2).err(), Some(Status::LBA_RANGE));
    assert_eq!(blocks(last + 1, 1).err(), Some(Status::LBA_RANGE));
    assert_eq!(blocks(u64::MAX, 2).err(), Some(Status::LBA_RANGE));
    host.write(1, last, &numbered(9, 1));
    assert!(
        host.read(2, 0, 1) == [0; BLOCK],
        "the next namespace begins after it"
    );
}

/// Blocks of 512 bytes: a remap must be of whole pages on both sides.
#[test]
fn parts_of_pages_are_not_remapped() {
    let host = Host::new();
    host.write(1, 0, &numbered(1, 32));
    let remap = |slba, source, count| {
        let blocks = RemapBlocks {
            target: Blocks { slba, count },
            source,
            relocate: false,
            atomic: false,
        };
        let namespace = host.subsystem.namespace(1).expect("there");
        match IoRequest::remap(&namespace, &blocks, false) {
            Ok(request) => host.ends(1, &request, &[]),
            Err(status) => status,
        }
    };
    for (target, source, count) in [(64, 0, 7), (64, 0, 9), (64, 1, 8), (65, 0, 8)] {
        assert_eq!(
            remap(target, source, count),
            Status::INVALID_FIELD,
            "{count} blocks from {source} to {target}"
        );
    }
    assert!(host.read(1, 64, 16) == [0; 16 * BLOCK]);
    assert_eq!(remap(64, 8, 16), Status::SUCCESS);
    assert!(host.read(1, 64, 16) == numbered(9, 16));
}

/// Each range of a copy follows the one before in the target.
#[test]
fn ranges_of_a_copy_follow_each_other() {
    let host = Host::new();
    host.write(1, 0, &numbered(1, 48));
    let range = |slba: u64, blocks: u16| {
        let mut range = [0; 32];
        range[8..16].copy_from_slice(&slba.to_le_bytes());
        range[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
        range
    };
    let ranges = [range(8, 8), range(3, 5), range(40, 8)].concat();
    let copy = IoRequest::Copy {
        target: 96,
        ranges: 3,
        with_namespaces: false,
        fua: false,
    };
    assert_eq!(host.ends(1, &copy, &ranges), Status::SUCCESS);
    let wanted = [numbered(9, 8), numbered(4, 5), numbered(41, 8)].concat();
    assert!(host.read(1, 96, 21) == wanted);
}

/// Pages of files are listed with the LBAs of their own namespace.
#[test]
fn a_namespace_lists_its_own_pages_of_a_file() {
    let host = Host::new();
    let page = numbered(1, 8);
    for (nsid, slba, offset) in [(1, 16, 0), (2, 40, 1), (2, 8, 2)] {
        let blocks = Blocks { slba, count: 8 };
        let write = IoRequest::FsWrite {
            blocks,
            page: FilePage { inode: 7, offset },
            fua: false,
        };
        assert_eq!(host.ends(nsid, &write, &page), Status::SUCCESS);
    }
    let list = |nsid| {
        let (outcome, data) = host.execute(
            nsid,
            &IoRequest::FsMap {
                bytes: 40,
                inode: Some(7),
                first: 0,
            },
            &[],
        );
        assert_eq!(outcome.status, Status::SUCCESS);
        let words: Vec<u32> = data
            .as_chunks::<4>()
            .0
            .iter()
            .map(|word| u32::from_le_bytes(*word))
            .collect();
        words[2..2 + 2 * words[0] as usize]
            .as_chunks::<2>()
            .0
            .to_vec()
    };
    assert_eq!(list(1), [[0, 2]]);
    assert_eq!(list(2), [[1, 5], [2, 1]]);
}

#[test]
fn a_write_in_parts_counts_once_even_if_a_later_part_is_refused() {
    let host = Host::new();
    let page = numbered(1, 8);
    host.write(1, 0, &page);
    assert_eq!(host.subsystem.health().write_commands, 1);

    // The second part finds the namespace as it was, then as another one.
    let request = IoRequest::Write {
        blocks: Blocks { slba: 8, count: 8 },
        fua: false,
    };
    let command = IoCommand::new(request, &host.subsystem.namespace(1).expect("it exists"));
    let changed = IoCommand {
        version: command.version + 1,
        ..command
    };
    let expected = [Status::SUCCESS, Status::INVALID_NAMESPACE];
    for (command, status) in [command, changed].into_iter().zip(expected) {
        let mut data = InMemory {
            from_host: &page,
            to_host: &mut Vec::new(),
        };

        let mut turn = host.subsystem.device();
        let subsystem = &host.subsystem;
        let issuer = Issuer::service();
        let outcome = subsystem.execute_next_part(&mut turn, &command, &issuer, 0, 0, &mut data);
        assert_eq!(outcome.status, status);
        assert_eq!(host.subsystem.health().write_commands, 1);
    }
}
