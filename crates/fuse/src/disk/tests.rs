//! A disk addressed by bytes is an array of bytes, whatever the blocks are.

use super::{Disk, DiskError};
use proptest::prelude::*;
use remap_ssd_device::{Device, DeviceConfig};
use remap_ssd_ftl::SchemeKind;
use remap_ssd_nvme::controller::{Gate, NamespaceSpec, Subsystem};
use std::sync::Arc;
use std::time::Instant;

const NQN: &str = "nqn.2026-11.test:remap-ssd";
const DEVICE_BYTES: u64 = 16 << 20;

fn disks(specs: &[NamespaceSpec]) -> (Arc<Gate>, Arc<Subsystem>, Vec<Disk>) {
    disks_of(DEVICE_BYTES, specs)
}

fn disks_of(bytes: u64, specs: &[NamespaceSpec]) -> (Arc<Gate>, Arc<Subsystem>, Vec<Disk>) {
    let config = DeviceConfig::for_service(bytes, SchemeKind::RemapSsd, false).expect("possible");
    let device = Device::format(config).expect("possible");
    let subsystem = Subsystem::new(device, NQN, specs).expect("possible");
    let subsystem = Arc::new(subsystem);
    let gate = Arc::new(Gate::new(subsystem.clone()));
    let epoch = Instant::now();
    let disks = (1..)
        .map_while(|nsid| Disk::new(gate.clone(), nsid, epoch))
        .collect();
    (gate, subsystem, disks)
}

fn shares(lba_shift: u8) -> [NamespaceSpec; 2] {
    // Small ones, so that operations meet.
    [
        NamespaceSpec {
            pages: 24,
            lba_shift,
        },
        NamespaceSpec {
            pages: 16,
            lba_shift,
        },
    ]
}

#[derive(Clone, Debug)]
enum Op {
    Write {
        disk: usize,
        offset: u64,
        len: usize,
        seed: u8,
        through: bool,
    },
    Zero {
        disk: usize,
        offset: u64,
        len: u64,
    },
    Copy {
        disk: usize,
        from: usize,
        offset: u64,
        source: u64,
        len: u64,
    },
    Read {
        disk: usize,
        offset: u64,
        len: u32,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let disk = 0..2usize;
    // Many offsets on blocks and pages, many not.
    let offset = (
        0..200u64,
        prop_oneof![Just(512u64), Just(4096), Just(1), Just(700)],
    )
        .prop_map(|(a, b)| a * b % 99_000);
    let len = prop_oneof![
        1..30_000u64,
        (1..8u64).prop_map(|pages| pages * 4096),
        (1..40u64).prop_map(|n| n * 512)
    ];
    prop_oneof![
        (
            disk.clone(),
            offset.clone(),
            len.clone(),
            any::<u8>(),
            any::<bool>()
        )
            .prop_map(|(disk, offset, len, seed, through)| Op::Write {
                disk,
                offset,
                len: len as usize,
                seed,
                through
            }),
        (disk.clone(), offset.clone(), len.clone()).prop_map(|(disk, offset, len)| Op::Zero {
            disk,
            offset,
            len
        }),
        (
            disk.clone(),
            disk.clone(),
            offset.clone(),
            offset.clone(),
            len.clone()
        )
            .prop_map(|(disk, from, offset, source, len)| Op::Copy {
                disk,
                from,
                offset,
                source,
                len
            }),
        (disk, offset, len).prop_map(|(disk, offset, len)| Op::Read {
            disk,
            offset,
            len: len as u32
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn bytes_are_what_was_written_copied_or_zeroed_last(
        lba_shift in prop_oneof![Just(9u8), Just(12)],
        ops in prop::collection::vec(op(), 1..80),
    ) {
        let (_, _, disks) = disks(&shares(lba_shift));
        let mut models: Vec<Vec<u8>> = disks.iter().map(|disk| vec![0; disk.bytes() as usize]).collect();
        let block = 1u64 << lba_shift;

        for op in ops {
            match op {
                Op::Write { disk, offset, len, seed, through } => {
                    let data: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
                    let model = &mut models[disk];
                    let fits = len.min(model.len().saturating_sub(offset as usize));
                    match disks[disk].write(offset, &data, through) {
                        Ok((written, _)) => prop_assert_eq!(written as usize, fits),
                        Err(error) => prop_assert!(error == DiskError::Range && fits == 0),
                    }
                    if fits > 0 {
                        model[offset as usize..offset as usize + fits].copy_from_slice(&data[..fits]);
                    }
                }
                Op::Zero { disk, offset, len } => {
                    disks[disk].zero(offset, len).expect("the device works");
                    let model = &mut models[disk];
                    let end = model.len().min((offset + len) as usize);
                    model[(offset as usize).min(end)..end].fill(0);
                }
                Op::Copy { disk, from, offset, source, len } => {
                    // The kernel lets no range of one file overlap itself.
                    if disk == from && offset.abs_diff(source) < len {
                        continue;
                    }
                    let room = (models[disk].len() as u64).saturating_sub(offset);
                    let there = (models[from].len() as u64).saturating_sub(source);
                    let fits = len.min(room).min(there);
                    let possible = offset % block == 0 && source % block == 0 && fits >= block;
                    match disks[disk].copy(offset, &disks[from], source, len) {
                        Ok((copied, _)) => {
                            prop_assert!(possible && copied == fits - fits % block);
                            let bytes = models[from][source as usize..(source + copied) as usize].to_vec();
                            models[disk][offset as usize..(offset + copied) as usize].copy_from_slice(&bytes);
                        }
                        Err(error) => {
                            prop_assert!(!possible && matches!(error, DiskError::Range | DiskError::Alignment));
                        }
                    }
                }
                Op::Read { disk, offset, len } => {
                    let (data, _) = disks[disk].read(offset, len).expect("the device works");
                    let model = &models[disk];
                    let (start, end) = ((offset as usize).min(model.len()), (offset as usize + len as usize).min(model.len()));
                    prop_assert!(data == model[start..end]);
                }
            }
        }

        for (disk, model) in disks.iter().zip(&models) {
            prop_assert!(disk.read(0, model.len() as u32).expect("the device works").0 == *model);
        }
    }
}

#[test]
fn copies_of_pages_program_nothing_between_disks_too() {
    let (_, subsystem, disks) = disks(&[
        NamespaceSpec {
            pages: 1024,
            lba_shift: 9,
        },
        NamespaceSpec {
            pages: 1024,
            lba_shift: 9,
        },
    ]);

    let data: Vec<u8> = (0..100 * 4096u32).map(|at| (at / 4096) as u8).collect();
    disks[0].write(8192, &data, false).expect("room");

    let programs = |subsystem: &Subsystem| subsystem.device().ftl().stats().programs();
    let before = programs(&subsystem);
    assert_eq!(
        disks[1]
            .copy(4096, &disks[0], 8192, data.len() as u64)
            .expect("possible")
            .0,
        data.len() as u64
    );
    assert_eq!(programs(&subsystem), before, "all of them are remaps");
    assert!(disks[1].read(4096, data.len() as u32).expect("there").0 == data);
}

#[test]
fn a_copy_that_is_longer_than_one_command_is_made_by_several() {
    // 16 MiB are one Copy: this is one, and half of another.
    let len = 24u64 << 20;
    let data: Vec<u8> = (0..(len / 4) as u32)
        .flat_map(|at| (at / 1024 + 1).to_le_bytes())
        .collect();
    for lba_shift in [9, 12] {
        let (_, subsystem, disks) = disks_of(
            2 * len,
            &[NamespaceSpec {
                pages: (2 * len / 4096) as u32,
                lba_shift,
            }],
        );
        for (at, piece) in (0u64..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
            disks[0].write(at, piece, false).expect("room");
        }

        let programs = |subsystem: &Subsystem| subsystem.device().ftl().stats().programs();
        let before = programs(&subsystem);
        assert_eq!(
            disks[0].copy(len, &disks[0], 0, len).expect("possible").0,
            len,
            "nothing is left to the caller"
        );
        assert_eq!(programs(&subsystem), before, "all of it is remapped");
        for (at, piece) in (len..).step_by(1 << 20).zip(data.chunks(1 << 20)) {
            assert!(disks[0].read(at, 1 << 20).expect("there").0 == piece);
        }
    }
}

#[test]
fn a_closed_gate_lets_nobody_in_and_gives_the_device_back() {
    let (gate, subsystem, disks) = disks(&shares(12));
    gate.close();
    assert_eq!(disks[0].write(0, &[1], false), Err(DiskError::Gone));
    assert_eq!(disks[0].flush(), Err(DiskError::Gone));
    assert!(Arc::into_inner(subsystem).is_some());
}
