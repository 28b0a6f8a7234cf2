//! The recording disk and the disk after a cut are disks: they read the last data written, byte by
//! byte.

use crate::array::{Array, DiskGeometry};
use crate::cut::{Choice, DiskState};
use crate::image::Image;
use crate::record::{About, Event, Recorder};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const SHAPE: DiskGeometry = DiskGeometry {
    block_bytes: 512,
    blocks: 64,
};
const BYTES: usize = 64 * 512;

/// Reads, writes and zeroes of random ranges, compared with bytes in memory.
fn exercise(disk: &dyn Array, model: &mut [u8], random: &mut Xoshiro256PlusPlus) {
    for _ in 0..300 {
        let start = random.random_range(0..BYTES);
        let end = random.random_range(start..BYTES.min(start + 5000)) + 1;
        match random.random_range(0..4) {
            0 => {
                disk.zero(start as u64, (end - start) as u64).unwrap();
                model[start..end].fill(0);
            }
            1 => {
                let mut read = vec![0xee; end - start];
                disk.read(start as u64, &mut read).unwrap();
                assert_eq!(read, model[start..end]);
            }
            _ => {
                let mut data = vec![0; end - start];
                random.fill(&mut data[..]);
                disk.write(start as u64, &data, random.random_bool(0.1))
                    .unwrap();
                model[start..end].copy_from_slice(&data);
            }
        }
    }
    let mut read = vec![0; BYTES];
    disk.read(0, &mut read).unwrap();
    assert_eq!(read, model);
}

#[test]
fn the_newest_data_is_read_while_recording_and_after_a_cut_that_loses_nothing() {
    for seed in 0..10 {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let recorder = Recorder::new(SHAPE).unwrap();
        let mut model = vec![0; BYTES];
        exercise(&recorder, &mut model, &mut random);

        let recording = recorder.finish(About::default());
        let state = DiskState::at(&recording, recording.events.len());
        let image = |choice: &Choice| {
            let blocks = state.after(&state.lost(choice));
            Image::new(SHAPE, recording.contents.clone(), blocks)
        };
        let (whole, other) = (
            image(&Choice::Lost(Vec::new())),
            image(&Choice::Lost(Vec::new())),
        );
        let before = model.clone();
        exercise(&whole, &mut model, &mut random);

        // A check's writes do not affect other cuts.
        let mut read = vec![0; BYTES];
        other.read(0, &mut read).unwrap();
        assert_eq!(read, before);
    }
}

#[test]
fn requests_are_recorded_with_their_completions_and_marks_in_one_order() {
    let recorder = Recorder::new(SHAPE).unwrap();
    recorder.note(Event::Start).unwrap();
    recorder.write(512, &[7; 1024], true).unwrap();
    recorder.mark(b"one\ntwo\n");
    recorder.zero(100, 1024).unwrap();
    recorder.flush().unwrap();
    recorder.note(Event::End).unwrap();

    let recording = recorder.finish(About::default());
    let write = |block, words, through| Event::Write {
        block,
        words,
        through,
    };
    let expected = [
        Event::Start,
        write(1, 0..2, true),
        Event::Done(1),
        Event::Mark(0),
        Event::Mark(1),
        // Blocks 0 and 2 are covered only in part.
        write(0, 2..3, false),
        Event::Done(5),
        write(2, 3..4, false),
        Event::Done(7),
        Event::Zero { block: 1, count: 1 },
        Event::Done(9),
        Event::Flush,
        Event::Done(11),
        Event::End,
    ];
    assert_eq!(recording.events, expected);
    assert_eq!(recording.instants(), 1..14);
    assert_eq!(recording.marks_before(4).collect::<Vec<_>>(), ["one"]);
    assert_eq!(recording.count(|event| *event == Event::Flush), 1);
}
