//! The text of a failure: what led to it, in the order of events, and each event in full.

use crate::history::{DeviceEvent, History};
use crate::kit::{deallocate, write};
use crate::script::ScriptCommand;
use remap_ssd_ftl::{FilePage, Lpn, Remap};

/// One command of each kind, with options, and its text.
fn commands() -> Vec<(ScriptCommand, &'static str)> {
    let many = |source| ScriptCommand::WriteMany {
        lpn: Lpn(20),
        len: 3,
        source,
        fresh: 70,
    };
    let remap = |len, relocate, atomic| {
        ScriptCommand::Remap(Remap {
            target: Lpn(50),
            source: Lpn(60),
            len,
            relocate,
            atomic,
        })
    };

    vec![
        (write(10, 7), "write 10: content 7"),
        (many(None), "write 20..23: content 70 and on"),
        (
            many(Some(Lpn(30))),
            "write 20..23: what 30..33 is, or content 70 and on",
        ),
        (
            ScriptCommand::FileWrite {
                lpn: Lpn(11),
                content: 8,
                page: FilePage {
                    inode: 5,
                    offset: 2,
                },
            },
            "write 11: content 8, page 2 of file 5",
        ),
        (ScriptCommand::FileReset, "reset the file map"),
        (
            ScriptCommand::WriteFor {
                lpn: Lpn(12),
                content: 9,
                home: Lpn(13),
            },
            "write 12, for 13: content 9",
        ),
        (deallocate(40, 1), "deallocate 40"),
        (deallocate(40, 4), "deallocate 40..44"),
        (remap(1, false, false), "remap 50 to what 60 is"),
        (
            remap(2, true, false),
            "remap 50..52 to what 60..62 is, relocate",
        ),
        (
            remap(2, false, true),
            "remap 50..52 to what 60..62 is, atomic",
        ),
        (
            remap(2, true, true),
            "remap 50..52 to what 60..62 is, relocate, atomic",
        ),
        (ScriptCommand::Flush, "flush"),
        (
            ScriptCommand::Background { steps: 6 },
            "background, 6 steps",
        ),
    ]
}

fn of(events: impl IntoIterator<Item = DeviceEvent>) -> History {
    let mut history = History::default();
    events.into_iter().for_each(|event| history.push(event));
    history
}

#[test]
fn each_kind_of_command_names_its_pages_contents_and_options() {
    for (command, text) in commands() {
        assert_eq!(command.to_string(), text);

        // As the history shows it, before and after it has returned.
        let explained = of([DeviceEvent::Submitting(command)]).explain(None);
        assert_eq!(
            explained,
            format!("  last events:\n    under way: {text}\n")
        );
        let explained = of([DeviceEvent::Submitted(3, command)]).explain(None);
        assert_eq!(explained, format!("  last events:\n    #3 {text}\n"));
    }
}

#[test]
fn each_kind_of_event_is_shown_in_order() {
    let history = of([
        DeviceEvent::Submitted(1, ScriptCommand::Flush),
        DeviceEvent::WornOut(2, ScriptCommand::Flush),
        DeviceEvent::Acknowledged(1),
        DeviceEvent::Idled,
        DeviceEvent::Settled,
        DeviceEvent::CaughtUp,
        DeviceEvent::Planted(4, Some(9)),
        DeviceEvent::Planted(5, None),
        DeviceEvent::PageDamaged(77),
        DeviceEvent::WordDamaged(88),
        DeviceEvent::Cut {
            pending: 6,
            whole: 3,
            torn: 2,
        },
        DeviceEvent::Recovering,
        DeviceEvent::Seen,
    ]);

    let expected = [
        "  last events:",
        "    #1 flush",
        "    refused, the flash is worn out: #2 flush",
        "    acknowledged #1",
        "    background work",
        "    everything under way ended",
        "    everything under way ended and was acknowledged",
        "    programs of block 4 fail from row 9 on",
        "    erases of block 5 fail",
        "    flash page 77 cannot be read",
        "    word 88 of NVRAM cannot be read",
        "    power cut: of 6 operations under way 3 whole, 2 torn",
        "    recovery",
        "    everything was read",
    ];
    assert_eq!(history.explain(None).lines().collect::<Vec<_>>(), expected);
}

/// The entry of a command under way is replaced by its result, and by nothing else.
#[test]
fn a_command_that_returned_is_shown_once() {
    let background = ScriptCommand::Background { steps: 2 };
    let returned = of([
        DeviceEvent::Submitting(write(1, 7)),
        DeviceEvent::Submitted(1, write(1, 7)),
        DeviceEvent::Submitting(background),
        DeviceEvent::Idled,
    ]);
    let expected = "  last events:\n    #1 write 1: content 7\n    background work\n";
    assert_eq!(returned.explain(None), expected);

    let cut = of([
        DeviceEvent::Submitting(write(1, 7)),
        DeviceEvent::Recovering,
    ]);
    let expected = "  last events:\n    under way: write 1: content 7\n    recovery\n";
    assert_eq!(cut.explain(None), expected);
}

/// LPNs 10 to 60 of `commands`: the commands that write, unmap or copy a page concern it.
#[test]
fn all_commands_on_the_page_that_is_wrong_are_shown() {
    let history = of((1..)
        .zip(commands())
        .map(|(id, (command, _))| DeviceEvent::Submitted(id, command)));
    let shown = |lpn: u32| {
        let text = history.explain(Some(Lpn(lpn)));
        let mut lines = text.lines();
        let heading = format!("  commands on LPN {lpn}:");
        assert_eq!(lines.next(), Some(heading.as_str()));
        lines
            .take_while(|line| *line != "  last events:")
            .map(|line| {
                let number = line.trim_start().trim_start_matches('#');
                number.split(' ').next().and_then(|it| it.parse().ok())
            })
            .collect::<Option<Vec<u32>>>()
            .expect("each line begins with the number of a command")
    };

    for (lpn, expected) in [
        (10, vec![1]),
        (20, vec![2, 3]),
        (22, vec![2, 3]),
        (23, vec![]),
        (11, vec![4]),
        (12, vec![6]),
        (40, vec![7, 8]),
        (43, vec![8]),
        (44, vec![]),
        (50, vec![9, 10, 11, 12]),
        (51, vec![10, 11, 12]),
        (60, vec![9, 10, 11, 12]),
        (61, vec![10, 11, 12]),
        (62, vec![]),
    ] {
        assert_eq!(shown(lpn), expected, "LPN {lpn}");
    }
}

/// 100 writes, of which LPN 5 has the even ones; the damage is the oldest event.
#[test]
fn a_long_history_shows_its_end_the_newest_commands_on_a_page_and_all_damage() {
    let writes = (1..=100).map(|id| DeviceEvent::Submitted(id, write(5 + id % 2, id.into())));
    let damage = [
        DeviceEvent::Planted(4, None),
        DeviceEvent::PageDamaged(77),
        DeviceEvent::WordDamaged(88),
        DeviceEvent::Seen,
    ];
    let history = of(damage.into_iter().chain(writes));
    let text = history.explain(Some(Lpn(5)));

    let of_page = (70..=100).step_by(2).map(|id| (5, id));
    let last = (61..=100).map(|id| (5 + id % 2, id));
    let line = |(lpn, id): (u32, u32)| format!("    #{id} write {lpn}: content {id}");
    let expected: Vec<String> = std::iter::once("  commands on LPN 5:".to_owned())
        .chain(of_page.map(line))
        .chain([
            "  long before: erases of block 4 fail".to_owned(),
            "  long before: flash page 77 cannot be read".to_owned(),
            "  long before: word 88 of NVRAM cannot be read".to_owned(),
            "  last events:".to_owned(),
        ])
        .chain(last.map(line))
        .collect();
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

/// A fork pushes its events on top of the main line's, and removes them at its end.
#[test]
fn events_of_a_dropped_fork_are_gone() {
    let mut history = of([DeviceEvent::Settled]);
    let mark = history.mark();
    history.push(DeviceEvent::Recovering);
    assert!(history.explain(None).ends_with("    recovery\n"));

    history.rewind(mark);
    assert_eq!(
        history.explain(None),
        "  last events:\n    everything under way ended\n"
    );
}
