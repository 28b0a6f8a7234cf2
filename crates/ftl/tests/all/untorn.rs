//! Writes of several pages that a power cut leaves whole or absent: their cost, their limits, and many of them interrupted.

use crate::kit::{content, device, durable, put, small_config, small_geometry};
use remap_ssd_ftl::{Config, Ftl, Lpn, RecoveryReport, Refusal, SchemeKind};
use remap_ssd_media::{Media, OpKind, Outcome, Page, Ppn, Purpose};

fn config(scheme: SchemeKind) -> Config {
    Config {
        untorn_bytes: 64 << 10,
        dedup: false,
        ..small_config(scheme)
    }
}

/// Writes `len` pages from `lpn` on, with the identities from `identity` on.
fn write(ftl: &mut Ftl, lpn: u32, len: u32, identity: u64) -> Result<(), Refusal> {
    ftl.begin_write(Lpn(lpn), len)?;
    for at in 0..len {
        ftl.write_more(Lpn(lpn + at), &content(identity + u64::from(at)))?;
    }
    ftl.end_write();
    Ok(())
}

fn kinds(ftl: &mut Ftl) -> Vec<OpKind> {
    let ops = std::mem::take(&mut ftl.media_mut().ops);
    let of_host = ops.iter().filter(|op| op.purpose == Purpose::Host);
    of_host.map(|op| op.kind).collect()
}

#[test]
fn a_write_costs_two_stores_and_no_page() {
    let mut ftl = device(small_geometry(), &config(SchemeKind::RemapSsd));
    put(&mut ftl, 0, 1);
    ftl.media_mut().ops.clear();
    let programs = ftl.stats().host_programs;
    write(&mut ftl, 8, 5, 100).unwrap();
    let done = kinds(&mut ftl);
    assert_eq!(done[0], OpKind::NvMark);
    assert_eq!(done[1..6], [OpKind::Program; 5]);
    assert_eq!(done[6..], [OpKind::NvWrite]);
    assert_eq!(ftl.stats().host_programs - programs, 5);

    // A page alone, and a write above the limit, name nothing.
    assert_eq!(ftl.untorn_pages_max(), 17);
    write(&mut ftl, 8, 1, 200).unwrap();
    write(&mut ftl, 8, 18, 300).unwrap();
    assert!(!kinds(&mut ftl).contains(&OpKind::NvMark));
}

#[test]
fn a_read_within_a_write_sees_its_pages_and_does_not_end_it() {
    let mut ftl = device(small_geometry(), &config(SchemeKind::None));
    ftl.media_mut().attach_rail();
    ftl.begin_write(Lpn(3), 2).unwrap();
    ftl.write_more(Lpn(3), &content(7)).unwrap();
    assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(7)));
    let image = ftl.media().cut(|| Outcome::Whole);
    let (mut cut, _) = Ftl::recover(Media::from_image(&image), ftl.config().clone()).unwrap();
    assert_eq!(
        cut.read(Lpn(3)),
        Ok(Page::Zeroes),
        "the write has not ended"
    );
    assert_eq!(ftl.begin_write(Lpn(600), 2), Err(Refusal::OutOfRange));
}

#[test]
fn a_write_that_ends_before_its_last_page_has_no_effect() {
    let mut ftl = device(small_geometry(), &config(SchemeKind::RemapSsd));
    put(&mut ftl, 3, 1);
    ftl.begin_write(Lpn(3), 2).unwrap();
    ftl.write_more(Lpn(3), &content(7)).unwrap();
    ftl.end_write();
    assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(1)));
    ftl.check().unwrap();
    write(&mut ftl, 3, 2, 50).unwrap();
    let image = ftl.media().to_image();
    let (mut ftl, _) = Ftl::recover(Media::from_image(&image), ftl.config().clone()).unwrap();
    assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(50)));
}

/// Writes pages with the identities from 100,000 on, and cuts the power before the write's last operation.
fn interrupted(mut ftl: Ftl, lpn: u32, len: u32) -> (Ftl, RecoveryReport) {
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();
    write(&mut ftl, lpn, len, 100_000).unwrap();
    let last = ftl.media().pending() - 1;
    let mut ops = 0..;
    let image = ftl.media().cut(|| match ops.next() == Some(last) {
        true => Outcome::Absent,
        false => Outcome::Whole,
    });
    let recovered = Ftl::recover(Media::from_image(&image), ftl.config().clone());
    let (ftl, report) = recovered.unwrap_or_else(|error| panic!("{error}"));
    ftl.check().unwrap();
    (ftl, report)
}

/// The last operation of each write is missing: hundreds in a row, which fill every word and the list.
#[test]
fn interrupted_writes_stay_absent_however_many_there_are() {
    for scheme in durable() {
        let mut ftl = device(small_geometry(), &config(scheme));
        (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        let mut most = 0;
        for nth in 0..400u32 {
            let lpn = nth * 7 % 590;
            let (next, report) = interrupted(ftl, lpn, 2 + nth % 5);
            ftl = next;
            most = most.max(report.aborted);
            for lpn in lpn..lpn + 2 + nth % 5 {
                let before = Page::Identity(u64::from(lpn) + 1);
                assert_eq!(ftl.read(Lpn(lpn)), Ok(before), "{scheme}, cut {nth}");
            }
        }
        assert!((2..=192).contains(&most), "{scheme}: {most} numbers");

        // Everything is as if none of them had happened, also after everything has been collected.
        (0..4000u32).for_each(|step| put(&mut ftl, 100 + step % 300, 200_000));
        let left = (0..100).chain(400..600);
        for lpn in left {
            let before = Page::Identity(u64::from(lpn) + 1);
            assert_eq!(ftl.read(Lpn(lpn)), Ok(before), "{scheme}");
        }
        write(&mut ftl, 0, 4, 300_000).unwrap();
        assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(300_003)));
    }
}

/// The pages of an interrupted write are in a superblock that dies. A cut leaves its erases undone, and later the word that says that it is
/// dead becomes unreadable: its pages are taken for witnesses again.
#[test]
fn an_interrupted_write_stays_absent_when_the_word_of_its_dead_superblock_is_lost() {
    const LPN: u32 = 20;
    for scheme in durable() {
        let mut ftl = device(small_geometry(), &config(scheme));
        (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
        let (mut ftl, report) = interrupted(ftl, LPN, 4);
        assert_eq!(report.aborted, 1, "{scheme}");
        let number = ftl.aborted()[0];
        let mut pages = (0..small_geometry().pages()).map(Ppn);
        let page = pages.find(|page| ftl.media().oob(*page).wsn() == number);
        let sb = small_geometry().superblock(page.expect("the pages landed"));

        let incarnation = |ftl: &Ftl| {
            let (_, found) = ftl.superblocks().nth(sb.0 as usize).expect("it exists");
            found.life.incarnation()
        };
        let before = incarnation(&ftl);
        ftl.media_mut().attach_rail();
        for step in 0.. {
            assert!(step < 20_000, "{scheme}: {sb:?} is never collected");
            ftl.media_mut().settle_all();
            put(&mut ftl, 30 + step * 11 % 570, 200_000);
            if incarnation(&ftl) != before {
                break;
            }
        }
        let image = ftl.media().cut_by(|kind| match kind {
            OpKind::Erase => Outcome::Absent,
            _ => Outcome::Whole,
        });

        // The first power-on finds it dead, with all of its pages; the second one does not know why.
        let config = ftl.config().clone();
        let (ftl, _) = Ftl::recover(Media::from_image(&image), config.clone()).unwrap();
        let mut media = ftl.into_media();
        assert_eq!(
            media.oob(page.unwrap()).wsn(),
            number,
            "{scheme}: no page is erased"
        );
        media.plant(|faults| {
            faults.flips.insert(sb.0 as usize * 3, 0b11);
        });
        let (mut ftl, _) = Ftl::recover(media, config).unwrap();
        for lpn in LPN..LPN + 4 {
            let before = Page::Identity(u64::from(lpn) + 1);
            assert_eq!(ftl.read(Lpn(lpn)), Ok(before), "{scheme}");
        }
        ftl.check().unwrap();
    }
}

/// Reads LPNs 10 and 11 after a power cut. `outcome` gets the kind of each operation, and its number among those of this kind.
fn pair_after(ftl: &Ftl, outcome: impl Fn(OpKind, usize) -> Outcome) -> [Page; 2] {
    let mut asked: [(OpKind, usize); 2] = [(OpKind::Program, 0), (OpKind::NvWrite, 0)];
    let image = ftl.media().cut_by(|kind| {
        let found = asked.iter_mut().find(|(of, _)| *of == kind);
        let nth = found.map_or(0, |(_, count)| std::mem::replace(count, *count + 1));
        outcome(kind, nth)
    });
    let recovered = Ftl::recover(Media::from_image(&image), ftl.config().clone());
    let mut ftl = recovered.expect("recovers").0;
    [10, 11].map(|lpn| ftl.read(Lpn(lpn)).expect("readable"))
}

/// A page that the LPN already has is not written. The write ends only once the one that made it so is durable.
#[test]
fn a_write_that_repeats_a_page_in_flight_does_not_end_before_it() {
    let config = Config {
        dedup: true,
        ..config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..20).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    put(&mut ftl, 10, 100);
    write(&mut ftl, 10, 2, 100).unwrap();
    let found = pair_after(&ftl, |kind, nth| match (kind, nth) {
        (OpKind::Program, 0) => Outcome::Absent,
        _ => Outcome::Whole,
    });
    assert_eq!(found, [Page::Identity(11), Page::Identity(12)]);
}

fn buffered() -> Ftl {
    let config = Config {
        write_buffer_bytes: 8 << 12,
        ..config(SchemeKind::RemapSsd)
    };
    let mut ftl = device(small_geometry(), &config);
    (0..600).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().attach_rail();
    write(&mut ftl, 10, 2, 100).unwrap();
    ftl
}

/// The first slot has landed, and nothing else of the write.
#[test]
fn a_slot_of_a_write_lands_after_the_word_that_names_it() {
    let ftl = buffered();
    let stores = ftl.media().pending();
    for from in 0..stores {
        for to in from..stores {
            let found = pair_after(&ftl, |_, nth| match (from..to).contains(&nth) {
                true => Outcome::Whole,
                false => Outcome::Absent,
            });
            let [old, new] = [[11, 12], [100, 101]].map(|pair| pair.map(Page::Identity));
            assert!(
                found == old || found == new,
                "stores {from} to {to}: {found:?}"
            );
        }
    }
}

/// The first page of a write has left the buffer, and the write has not ended.
#[test]
fn a_page_leaves_the_buffer_after_the_end_of_its_write() {
    let mut ftl = buffered();
    let mut others = 30..;
    while ftl
        .place(Lpn(10))
        .is_none_or(|page| ftl.media().oob(page).wsn() < 600)
    {
        put(&mut ftl, others.next().expect("endless"), 5000);
    }
    let found = pair_after(&ftl, |kind, _| match kind {
        OpKind::Program => Outcome::Whole,
        _ => Outcome::Absent,
    });
    assert_eq!(
        found[1] == Page::Identity(12),
        found[0] == Page::Identity(11),
        "{found:?}"
    );
}
