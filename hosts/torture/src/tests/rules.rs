//! The rules of a volatile write cache, one by one, with recordings of a few requests.

use super::kit::Script;
use crate::contents::ZEROES;
use std::collections::BTreeSet;

fn set<const N: usize>(ids: [u32; N]) -> BTreeSet<u32> {
    ids.into()
}

#[test]
fn a_block_keeps_any_version_since_its_last_durable_one() {
    let mut script = Script::new(1);
    let durable = script.written(0);
    script.flushed();
    let [between, newest] = [(); 2].map(|()| script.written(0));
    assert_eq!(script.now(), [set([durable, between, newest])]);
}

#[test]
fn a_flush_covers_what_was_completed_before_it_was_submitted() {
    let mut script = Script::new(3);
    let before = script.written(0);
    let under_way = script.write(1, 1, false);
    let flush = script.flush();
    script.done(under_way);
    let after = script.written(2);
    assert_eq!(
        script.now()[0],
        set([ZEROES, before]),
        "a flush that is not completed covers nothing"
    );

    script.done(flush);
    let under_way = script.recording.words[1];
    assert_eq!(
        script.now(),
        [
            set([before]),
            set([ZEROES, under_way]),
            set([ZEROES, after])
        ]
    );
}

#[test]
fn fua_makes_its_own_write_durable_and_nothing_else() {
    let mut script = Script::new(2);
    let [older, other] = [script.written(0), script.written(1)];
    let through = script.write(0, 1, true);
    let id = *script.recording.words.last().unwrap();
    assert_eq!(
        script.now(),
        [set([ZEROES, older, id]), set([ZEROES, other])],
        "not before it is completed"
    );

    script.done(through);
    assert_eq!(script.now(), [set([id]), set([ZEROES, other])]);
}

#[test]
fn zeroes_and_deallocations_are_lost_like_writes() {
    let mut script = Script::new(2);
    let [first, second] = [script.written(0), script.written(1)];
    script.flushed();
    let zeroed = script.zero(0, 2);
    script.done(zeroed);
    assert_eq!(script.now(), [set([first, ZEROES]), set([second, ZEROES])]);
    script.flushed();
    assert_eq!(script.now(), [set([ZEROES]), set([ZEROES])]);
}

#[test]
fn a_write_that_is_not_completed_may_be_there() {
    let mut script = Script::new(1);
    script.write(0, 1, false);
    let id = script.recording.words[0];
    assert_eq!(script.now(), [set([ZEROES, id])]);
}

#[test]
fn what_is_durable_replaces_what_came_before_it() {
    let mut script = Script::new(1);
    script.written(0);
    let durable = script.written(0);
    script.flushed();
    script.flushed();
    assert_eq!(script.now(), [set([durable])]);
}
