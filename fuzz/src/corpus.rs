//! The committed corpus: small devices that have seen some use, a few lines of each trace format,
//! and what a well-behaved host sends.
//!
//! Invariant: [`make`] gives the same files on any machine, for one version of the firmware.
//! Absent: anything recorded on a real system.

use remap_ssd_device::{DeviceConfig, Lpn, PRESETS};
use remap_ssd_ftl::{Config, EntrySize, FilePage, Ftl, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{BlockId, ContentMode, Geometry, Media, Outcome, Payload, image_file};

/// Folder of the corpus in the source tree: a folder for each target is in it.
pub fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// Every file of the corpus: its name under [`folder`], and its bytes.
pub fn make() -> Vec<(String, Vec<u8>)> {
    let mut files = images();
    for (name, text) in TRACES {
        files.push((format!("trace/{name}"), text.as_bytes().to_vec()));
    }
    for (name, bytes) in SAMPLES {
        files.push((format!("trace/{name}"), bytes.to_vec()));
    }

    files.extend(crate::auth::make());
    files.extend(crate::tls::make());
    files.extend(crate::keys::make());
    files.extend(crate::sessions::make());
    files.push(("trace/vscsi-1".into(), vscsi(1)));
    files.push(("trace/vscsi-2".into(), vscsi(2)));

    let packed = zstd::encode_all(TRACES[0].1.as_bytes(), 3).expect("a vector takes everything");
    files.push(("trace/fiu.zst".into(), packed));
    files
}

/// Images of devices under several schemes and with several pasts, and damaged ones.
fn images() -> Vec<(String, Vec<u8>)> {
    use ContentMode::{Bytes, Identity, None};
    use DeviceFate::{Cut, Failing, Kept, MapCut, Mapped};
    use EntrySize::{Bytes16, Bytes24};
    let name = |name: &str| format!("file/{name}.image");

    let mut files = Vec::new();
    for scheme in [
        SchemeKind::None,
        SchemeKind::RemapSsd,
        SchemeKind::FLog,
        SchemeKind::NLog,
        SchemeKind::Pebble,
        SchemeKind::RemapSsdX,
        SchemeKind::RemapSsdLh,
        SchemeKind::WalSsd,
    ] {
        let file = image(scheme, Bytes16, Identity, Kept);
        files.push((format!("file/{scheme}.image"), file));
    }
    for (of, entry, mode, fate) in [
        ("atomic", Bytes24, Identity, Kept),
        ("bytes", Bytes16, Bytes, Kept),
        ("cut", Bytes24, Identity, Cut),
        ("failed-blocks", Bytes16, None, Failing),
        ("file-map", Bytes16, Identity, Mapped),
        ("file-map-cut", Bytes24, Identity, MapCut),
    ] {
        files.push((name(of), image(SchemeKind::RemapSsd, entry, mode, fate)));
    }

    let whole = files[1].1.clone();
    for (of, at) in [
        ("damaged-header", 21),
        ("damaged-body", whole.len() / 2),
        ("damaged-hash", whole.len() - 9),
    ] {
        files.push((name(of), changed(&whole, at)));
    }
    files.push((name("truncated"), whole[..whole.len() * 2 / 3].to_vec()));
    files
}

fn changed(bytes: &[u8], at: usize) -> Vec<u8> {
    let mut out = bytes.to_vec();
    out[at] ^= 0x41;
    out
}

/// The samples of the formats of other programs, which the readers' own tests have too.
const SAMPLES: [(&str, &[u8]); 13] = [
    (
        "alibaba.csv",
        include_bytes!("../../crates/sim/tests/traces/samples/alibaba.csv"),
    ),
    (
        "tencent.csv",
        include_bytes!("../../crates/sim/tests/traces/samples/tencent.csv"),
    ),
    (
        "systor.csv",
        include_bytes!("../../crates/sim/tests/traces/samples/systor.csv"),
    ),
    (
        "fio-2.log",
        include_bytes!("../../crates/sim/tests/traces/samples/fio-2.log"),
    ),
    (
        "fio-3.log",
        include_bytes!("../../crates/sim/tests/traces/samples/fio-3.log"),
    ),
    (
        "blktrace.bin",
        include_bytes!("../../crates/sim/tests/traces/samples/blktrace.bin"),
    ),
    (
        "oracle-general.bin",
        include_bytes!("../../crates/sim/tests/traces/samples/oracle-general.bin"),
    ),
    (
        "spc.spc",
        include_bytes!("../../crates/sim/tests/traces/samples/spc.spc"),
    ),
    (
        "disksim.trace",
        include_bytes!("../../crates/sim/tests/traces/samples/disksim.trace"),
    ),
    (
        "biosnoop.txt",
        include_bytes!("../../crates/sim/tests/traces/samples/biosnoop.txt"),
    ),
    (
        "cloudphysics.csv",
        include_bytes!("../../crates/sim/tests/traces/samples/cloudphysics.csv"),
    ),
    (
        "fast21.txt",
        include_bytes!("../../crates/sim/tests/traces/samples/fast21.txt"),
    ),
    (
        "blkparse-earlier.txt",
        include_bytes!("../../crates/sim/tests/traces/samples/blkparse-earlier.txt"),
    ),
];

/// What becomes of the device before it is saved.
#[derive(Clone, Copy, PartialEq)]
enum DeviceFate {
    Kept,
    Cut,
    Failing,
    /// With a file map; and its power was cut.
    Mapped,
    MapCut,
}

impl DeviceFate {
    fn has_map(self) -> bool {
        matches!(self, Self::Mapped | Self::MapCut)
    }
    fn is_cut(self) -> bool {
        matches!(self, Self::Cut | Self::MapCut)
    }
}

fn image(scheme: SchemeKind, entry: EntrySize, mode: ContentMode, fate: DeviceFate) -> Vec<u8> {
    let shape = Shape {
        channels: 1,
        dies: 2,
        superblocks: 20,
        pages_per_block: 8,
    };

    let geometry = Geometry::new(shape).expect("valid");

    let firmware = Config {
        // Some schemes keep superblocks to themselves.
        lpns: if scheme == SchemeKind::RemapSsdLh {
            60
        } else {
            90
        },
        scheme,
        log_bytes: if scheme == SchemeKind::Pebble {
            16 << 10
        } else {
            24 * 128
        },
        fs_files: if fate.has_map() { 3 } else { 0 },
        fs_blocks: if fate.has_map() { 20 } else { 0 },
        segment_bytes: 128,
        entry,
        dedup: mode != ContentMode::None,
        count_max: 5,
        dealloc_slots: 8,
        ..Config::default()
    };

    let config = DeviceConfig {
        content: mode,
        geometry,
        firmware: firmware.clone(),
        ..PRESETS[0].config()
    };
    config.check().expect("the corpus' device works");

    let mut media = Media::blank(geometry, mode, firmware.nvram_words(&geometry));
    media.attach_rail();
    let mut ftl = Ftl::format(media, firmware).expect("checked");

    if fate == DeviceFate::Failing {
        ftl.media_mut().plant(|faults| {
            faults.program.insert(BlockId(2), 3);
            faults.erase.insert(BlockId(9));
        });
    }

    script(&mut ftl, if mode == ContentMode::Bytes { 130 } else { 330 });

    let mut turn = 0u64;
    let image = ftl.media().cut(|| {
        turn += 1;
        match (fate, turn % 5) {
            (fate, 2) if fate.is_cut() => Outcome::Absent,
            (fate, 4) if fate.is_cut() => Outcome::Torn(turn),
            _ => Outcome::Whole,
        }
    });

    let mut file = Vec::new();
    image_file::write(&mut file, &image, config.to_toml().as_bytes())
        .expect("a vector takes everything");
    file
}

/// Writes, duplicates, remaps, moves and trims, until garbage has been collected.
fn script(ftl: &mut Ftl, steps: u32) {
    let lpns = ftl.config().lpns;
    let atomic = ftl.config().entry == EntrySize::Bytes24;
    let mode = ftl.media().mode();

    for step in 0..steps {
        let lpn = step * 37 % lpns;
        let content = u64::from(if step % 4 == 0 { step % 11 } else { step }) + 1;
        let page = [content as u8; 4096];

        let payload = match mode {
            ContentMode::Bytes => Payload::Bytes(&page),
            _ => Payload::Identity(content),
        };

        if ftl.config().fs_files > 0 && step % 3 == 0 {
            let page = FilePage {
                inode: step % 5,
                offset: step,
            };
            ftl.fs_write(Lpn(lpn), &payload, page)
                .map(drop)
                .expect("within the device");
        } else {
            ftl.write(Lpn(lpn), &payload).expect("within the device")
        }

        if step % 7 == 3 {
            let (target, source) = (Lpn((lpn + 11) % (lpns - 3)), Lpn(step % (lpns - 3)));
            ftl.remap(&Remap {
                target,
                source,
                len: 3,
                relocate: step % 2 == 0,
                atomic,
            })
            .expect("within the device");
        }

        if step % 9 == 5 {
            ftl.deallocate(Lpn(step % (lpns - 2)), 2)
                .expect("within the device");
        }

        ftl.media_mut().ops.clear();
        if step + 20 < steps {
            ftl.media_mut().settle_all();
        }
    }
}

const TRACES: &[(&str, &str)] = &[
    (
        "fiu",
        "89966104 1234 httpd 1072 8 W 6 0 0123456789abcdef0123456789abcdef\n\
         89967200 1234 a process 1080 8 R 6 0 fedcba9876543210fedcba9876543210\n\
         89969000 99 pdflush 1072 16 W 6 0 0123456789abcdef0123456789abcdeffedcba9876543210fedcba9876543210\n",
    ),
    (
        "mqsim",
        "938513000 4 264719034 16 0\n938514000 4 264719050 8 1\n938514500 4 7 3 0\n",
    ),
    (
        "msr",
        "128166372003061629,src1,0,Read,8192,4096,1331\n128166372016382155,src1,0,Write,12288,512,1331\n\
         128166372026382245,src1,1,Write,2822144,4096,6312\n",
    ),
    (
        "blkparse",
        "  8,0    1        1     0.000000000   697  Q   W 223490 + 8 [kjournald]\n\
         \x20 8,0    1        2     0.000001829   697  G   W 223490 + 8 [kjournald]\n\
         \x20 8,0    3        3     0.004177024   697  Q   R 9512560 + 16 [cat]\n\
         \x20 8,0    3        4     0.005000000   697  Q   D 4096 + 64 [fstrim]\n",
    ),
];

fn vscsi(version: u8) -> Vec<u8> {
    let mut out = Vec::new();
    for record in 0..6u64 {
        let opcode = if record % 3 == 1 { 0x28u16 } else { 0x2a };
        let fixed: Vec<u8> = [record as u32, 4096, 1]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();

        let verb = [opcode.to_le_bytes(), [0, version]].concat();

        if version == 1 {
            out.extend([fixed, verb].concat());
        } else {
            out.extend([verb, fixed].concat());
        }

        out.extend((record * 8).to_le_bytes());
        out.extend((1_000_000 + record * 250).to_le_bytes());

        if version == 2 {
            out.extend(77u64.to_le_bytes());
        }
    }

    out
}
