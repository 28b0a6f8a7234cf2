//! Acknowledgements: the state seen by the host at an acknowledgement is durable.

use crate::kit::{durable, put, small};
use remap_ssd_ftl::{Ftl, Lpn, Remap, SchemeKind};
use remap_ssd_media::{Media, Outcome, Page};

fn copy(target: u32, source: u32) -> Remap {
    Remap {
        target: Lpn(target),
        source: Lpn(source),
        len: 1,
        relocate: false,
        atomic: false,
    }
}

/// LPNs 0 to 9 are written and durable; from then on only acknowledged operations complete.
fn watched(scheme: SchemeKind) -> Ftl {
    let mut ftl = small(scheme);
    (0..10).for_each(|lpn| put(&mut ftl, lpn, u64::from(lpn) + 1));
    ftl.media_mut().ops.clear();
    ftl.media_mut().attach_rail();
    ftl
}

/// The host receives this command's acknowledgement, and then power fails.
fn acknowledged(mut ftl: Ftl, command: impl FnOnce(&mut Ftl)) -> Ftl {
    ftl.media_mut().begin_command();
    command(&mut ftl);
    let ack = ftl.media_mut().take_ack();
    ftl.media_mut().settle(&ack);
    let image = ftl.media().cut(|| Outcome::Absent);
    let (ftl, _) = Ftl::recover(Media::from_image(&image), ftl.config().clone()).expect("recovers");
    ftl
}

#[test]
fn a_flush_makes_all_before_it_durable() {
    for scheme in durable() {
        let mut ftl = watched(scheme);
        put(&mut ftl, 3, 77);
        ftl.deallocate(Lpn(4), 1).unwrap();
        ftl.remap(&copy(5, 6)).unwrap();
        let mut ftl = acknowledged(ftl, |ftl| ftl.flush().unwrap());
        let read = [3, 4, 5].map(|lpn| ftl.read(Lpn(lpn)).unwrap());
        assert_eq!(
            read,
            [Page::Identity(77), Page::Zeroes, Page::Identity(7)],
            "{scheme}"
        );
    }
}

#[test]
fn a_remap_that_changes_nothing_vouches_for_what_made_it_so() {
    for scheme in durable() {
        // Onto itself.
        let mut ftl = watched(scheme);
        put(&mut ftl, 3, 77);
        let mut ftl = acknowledged(ftl, |ftl| ftl.remap(&copy(3, 3)).unwrap());
        assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(77)), "{scheme}");
        // Between two LPNs without a page, one of which has just lost it.
        let mut ftl = watched(scheme);
        ftl.deallocate(Lpn(3), 1).unwrap();
        let mut ftl = acknowledged(ftl, |ftl| ftl.remap(&copy(3, 20)).unwrap());
        assert_eq!(ftl.read(Lpn(3)), Ok(Page::Zeroes), "{scheme}");
        // The page that the target already has.
        let mut ftl = watched(scheme);
        ftl.remap(&copy(3, 4)).unwrap();
        let mut ftl = acknowledged(ftl, |ftl| ftl.remap(&copy(3, 4)).unwrap());
        assert_eq!(ftl.read(Lpn(3)), Ok(Page::Identity(5)), "{scheme}");
    }
}

/// Also for a page that is still being written.
#[test]
fn a_remap_or_duplicate_vouches_for_the_page_it_shares() {
    for scheme in durable() {
        let mut ftl = watched(scheme);
        put(&mut ftl, 3, 77);
        let mut ftl = acknowledged(ftl, |ftl| ftl.remap(&copy(20, 3)).unwrap());
        assert_eq!(ftl.read(Lpn(20)), Ok(Page::Identity(77)), "{scheme}");

        let mut ftl = watched(scheme);
        put(&mut ftl, 3, 77);
        let mut ftl = acknowledged(ftl, |ftl| put(ftl, 20, 77));
        assert_eq!(ftl.read(Lpn(20)), Ok(Page::Identity(77)), "{scheme}");

        let mut ftl = watched(scheme);
        put(&mut ftl, 3, 77);
        let mut ftl = acknowledged(ftl, |ftl| put(ftl, 3, 77));
        assert_eq!(
            ftl.read(Lpn(3)),
            Ok(Page::Identity(77)),
            "{scheme}: the same once more"
        );
    }
}
