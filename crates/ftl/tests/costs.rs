//! What each operation costs, counted exactly: no noise, and a worse algorithm fails at once.

mod kit;

use kit::{content, device, recovered, small, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Remap, SchemeKind};
use remap_ssd_media::geometry::Shape;
use remap_ssd_media::{Geometry, Op, OpKind};

fn ops_of(ftl: &mut Ftl, act: impl FnOnce(&mut Ftl)) -> Vec<Op> {
    ftl.media_mut().ops.clear();
    act(ftl);
    std::mem::take(&mut ftl.media_mut().ops)
}

fn count(ops: &[Op], kind: OpKind) -> usize {
    ops.iter().filter(|op| op.kind == kind).count()
}

fn bytes(ops: &[Op], kind: OpKind) -> u32 {
    ops.iter().filter(|op| op.kind == kind).map(|op| op.amount).sum()
}

fn remap(target: u32, source: u32, len: u32) -> Remap {
    Remap { target, source, len, relocate: false, atomic: false }
}

#[test]
fn a_remap_is_two_nvram_stores_and_no_program() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(0, &content(1)).unwrap();
    ftl.remap(&remap(1, 0, 1)).unwrap(); // Takes the group's first segment.
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(2, 0, 1)).unwrap());
    assert_eq!(bytes(&ops, OpKind::NvWrite), 16);
    assert_eq!(count(&ops, OpKind::NvWrite), 1);
    assert_eq!(count(&ops, OpKind::Program) + count(&ops, OpKind::Read) + count(&ops, OpKind::NvRead), 0);
}

#[test]
fn a_new_segment_costs_its_head_and_the_link_to_it() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(0, &content(1)).unwrap();
    // 128-byte segments have seven slots for entries.
    for target in 1..8 {
        ftl.remap(&remap(target, 0, 1)).unwrap();
    }
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(8, 0, 1)).unwrap());
    assert_eq!(bytes(&ops, OpKind::NvWrite), 8 + 16 + 16, "late next-link, head, entry");
}

#[test]
fn a_duplicate_write_costs_what_a_remap_costs() {
    let mut ftl = small(SchemeKind::RemapSsd);
    ftl.write(0, &content(7)).unwrap();
    ftl.write(1, &content(7)).unwrap();
    let ops = ops_of(&mut ftl, |ftl| ftl.write(2, &content(7)).unwrap());
    assert_eq!((bytes(&ops, OpKind::NvWrite), count(&ops, OpKind::Program)), (16, 0));
}

#[test]
fn without_remapping_every_duplicate_is_a_program() {
    let mut ftl = small(SchemeKind::None);
    ftl.write(0, &content(7)).unwrap();
    let ops = ops_of(&mut ftl, |ftl| ftl.write(1, &content(7)).unwrap());
    assert_eq!(count(&ops, OpKind::Program), 1);
    let ops = ops_of(&mut ftl, |ftl| ftl.remap(&remap(2, 0, 1)).unwrap());
    assert_eq!((count(&ops, OpKind::Read), count(&ops, OpKind::Program)), (1, 1));
}

#[test]
fn opt_remaps_for_nothing() {
    let mut ftl = small(SchemeKind::Opt);
    ftl.write(0, &content(7)).unwrap();
    assert!(ops_of(&mut ftl, |ftl| ftl.remap(&remap(1, 0, 1)).unwrap()).iter().all(|op| op.kind == OpKind::Wait));
}

#[test]
fn a_trim_of_any_length_is_one_record() {
    let mut ftl = small(SchemeKind::RemapSsd);
    for lpn in 0..100 {
        ftl.write(lpn, &content(u64::from(lpn) + 1)).unwrap();
    }
    for len in [1, 100, 600] {
        let ops = ops_of(&mut ftl, |ftl| ftl.deallocate(0, len).unwrap());
        assert_eq!((bytes(&ops, OpKind::NvWrite), count(&ops, OpKind::Program)), (16, 0), "{len} pages");
    }
}

/// The lookup before a victim is emptied: one group for Remap-SSD, the whole log for the others.
#[test]
fn finding_owners_reads_one_group_or_the_whole_log() {
    for scheme in [SchemeKind::RemapSsd, SchemeKind::NLog, SchemeKind::FLog] {
        let mut ftl = small(scheme);
        let mut random = kit::Random(3);
        let (mut lookups, mut most) = (0, 0);
        for _ in 0..6000 {
            let identity = 1 + random.below(500);
            let lpn = random.below(600) as u32;
            let used = ftl.usage().used_bytes;
            let ops = ops_of(&mut ftl, |ftl| ftl.write(lpn, &content(identity)).unwrap());
            let Some(begin) = ops.iter().position(|op| op.kind == OpKind::LookupBegin) else { continue };
            let end = ops.iter().position(|op| op.kind == OpKind::LookupEnd).expect("ends");
            let scans = &ops[begin..end];
            lookups += 1;
            match scheme {
                SchemeKind::FLog => most = most.max(bytes(scans, OpKind::ScanFlash)),
                SchemeKind::NLog => assert!(u64::from(bytes(scans, OpKind::NvRead)) >= used.saturating_sub(16)),
                _ => assert!(u64::from(bytes(scans, OpKind::NvRead)) <= ftl.usage().largest_group_seen_bytes),
            }
        }
        assert!(lookups > 20, "{scheme}: {lookups} lookups");
        assert!(scheme != SchemeKind::FLog || most >= 6, "FLog read at most {most} pages of its log");
    }
}

/// Recovery reads head pages, tail pages, OOB areas of open superblocks and NVRAM: counted on the papers' setup A
/// with 120 MB of remapping metadata.
#[test]
fn recovery_of_setup_a_reads_heads_tails_open_oobs_and_nvram() {
    let geometry = Geometry::new(Shape { channels: 8, dies: 16, superblocks: 576, pages_per_block: 1024 }).unwrap();
    let config = Config { lpns: 8 << 20, log_bytes: 120 << 20, ..Config::default() };
    let mut ftl = device(geometry, &config);
    let mut random = kit::Random(9);
    let contents = u64::from(config.lpns) * 7 / 10;
    for _ in 0..6_000_000 {
        let lpn = random.below(u64::from(config.lpns) * 9 / 10) as u32;
        ftl.write(lpn, &content(1 + random.below(contents))).unwrap();
        ftl.media_mut().ops.clear();
    }
    let closed = ftl.superblocks().filter(|(_, sb)| sb.state == remap_ssd_ftl::State::Closed).count() as u64;
    let open: Vec<_> =
        ftl.superblocks().filter(|(_, sb)| sb.state == remap_ssd_ftl::State::Open).map(|(id, _)| id).collect();
    let media = ftl.media();
    let mut oobs = 0;
    for sb in &open {
        for die in 0..geometry.dies() {
            let rows = u64::from(media.next_row(geometry.block(*sb, die)));
            oobs += (rows + 1).min(u64::from(geometry.pages_per_block())); // And the first erased page.
        }
    }
    let reads_before = media.counts.reads;
    assert!(closed > 100 && !open.is_empty());
    let (ftl, report) = recovered(ftl);
    assert_eq!(report.head_pages, 576);
    assert_eq!(report.tail_pages, closed * 41 + open.len() as u64, "41 tail pages each; an open one has none");
    assert_eq!(report.oob_pages, oobs);
    assert_eq!(report.nvram_bytes, (config.nvram_words(&geometry) * 8) as u64);
    assert_eq!((report.bitmap_pages, report.log_pages), (0, 0));
    let flash = report.head_pages + report.tail_pages + report.oob_pages;
    let reads = ftl.media().counts.reads - reads_before;
    assert_eq!(reads, flash, "and no flash page besides");
}

#[test]
fn recovery_of_a_small_device_reads_no_data_page() {
    let geometry = small_geometry();
    let mut ftl = device(geometry, &small_config(SchemeKind::RemapSsd));
    for lpn in 0..300 {
        ftl.write(lpn, &content(u64::from(lpn % 50) + 1)).unwrap();
    }
    let before = ftl.media().counts.reads;
    let (ftl, report) = recovered(ftl);
    let told = report.head_pages + report.tail_pages + report.oob_pages;
    assert_eq!(ftl.media().counts.reads - before, told);
}
