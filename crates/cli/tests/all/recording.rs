//! `serve --record`: replaying a recorded session gives the device's own counts.

use crate::kit::{Words, run};
use crate::served::serve;

#[test]
fn a_recorded_session_replays_to_the_same_counts() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let (trace, data, back) = (path("session.trace"), path("data"), path("back"));
    // 200 pages, 50 of which duplicate others.
    let bytes: Vec<u8> = (0..200u32)
        .flat_map(|page| [(page % 150) as u8 + 1; 4096])
        .collect();
    std::fs::write(&data, &bytes).expect("room");
    // Blocks of 512 bytes; the client's blocks have 4096, so each is a page.
    let served = serve(&["--memory", "32MiB", "--block", "512", "--record", &trace]);
    served.io(&["write", "--lba", "100", "--file", &data]).ok();
    served.io(&["write", "--lba", "200", "--file", &data]).ok();
    served.io("copy --from 100 --to 1000 --blocks 150").ok();
    served
        .io("remap --from 1000 --to 2000 --blocks 64 --relocate")
        .ok();
    served.io("trim --lba 100 --blocks 40").ok();
    served
        .io(&["read", "--lba", "1000", "--blocks", "77", "--file", &back])
        .ok();
    served.io("read --lba 999999").fails(1, &["out of range"]);
    served.io("flush").ok();
    let counted =
        ["host_reads", "host_deallocations", "host_pages", "remaps"].map(|name| served.stat(name));
    served.stop();
    assert_eq!(counted, [77, 40, 614, 214], "as asked");
    let found = run(&["trace", "stat", &trace, "--json"]).ok().json();
    let pages = &found[0]["profile"]["pages"];
    for (name, count) in [
        ("read", 77),
        ("trimmed", 40),
        ("written", 400),
        ("remapped", 214),
    ] {
        assert_eq!(pages[name], count, "{name} in {found}");
    }
    // 150 contents in 200 pages, all written twice.
    assert_eq!(
        found[0]["profile"]["duplicates"]["contents"], 150,
        "{found}"
    );
    let device = "--scheme remap-ssd --no-aging --dedup off";
    let args = device.and("--json");
    let compared = run(&["compare", "--trace", &trace].and(&args)).ok().out;
    for (name, count) in [("host_pages", 614), ("remaps", 214)] {
        assert!(
            compared.contains(&format!("\"{name}\": {count}")),
            "{name} is not {count} in {compared}"
        );
    }

    // A killed server leaves a partial record: the others are replayed, and one line reports it.
    let mut torn = std::fs::read_to_string(&trace).expect("a session");
    let line = torn.lines().count() + 1;
    torn.push_str("99999999999 W 5 0123");
    std::fs::write(path("torn.trace"), torn).expect("room");
    let torn = path("torn.trace");
    let again = run(&["compare", "--trace", &torn].and(&args)).ok();
    let note = format!("{torn}:{line}: the session ends in half a record");
    assert_eq!(again.err.matches(&note).count(), 1, "{}", again.err);
    assert_eq!(again.out.replace("torn.trace", "session.trace"), compared);
    assert!(run(&["trace", "stat", &torn]).ok().err.contains(&note));

    // Also before it is played, and with a mistake that is found after the reading.
    let played = "watch --http 127.0.0.1:0 --speed 1000000 --end".and(device);
    // Results of `compare` are not written: the page has them.
    run(&played.clone().and(&["--trace", &torn, "--report", "x"])).fails(2, &["--report"]);
    let played = run(&played.and(&["--trace", &torn])).ok();
    assert_eq!(played.err.matches(&note).count(), 1, "{}", played.err);
    run(&["compare", "--trace", &torn, "--preset", "none"]).fails(2, &["none", &note]);

    run(&["serve", "--memory", "32MiB", "--record", &trace]).fails(1, &[&trace, "there already"]);
}
