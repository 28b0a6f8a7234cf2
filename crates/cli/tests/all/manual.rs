//! Shell completions, and manual pages for `man`.

use crate::kit::run;
use std::process::{Command, Stdio};

// Bash itself completes a word with the script, whose function provides the names of options.
#[test]
fn bash_completes_commands_and_options() {
    let script = run("completions bash").ok().out;
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("remap-ssd.bash");
    std::fs::write(&file, script).unwrap();

    let completed = |words: &str| {
        let ask = format!(
            "source {}; ours=$(complete -p remap-ssd | sed 's/.*-F \\([^ ]*\\).*/\\1/'); \
             COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             $ours remap-ssd \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; \
             echo \"${{COMPREPLY[@]}}\"",
            file.display()
        );
        let output = Command::new("bash")
            .args(["-c", &ask])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };

    assert_eq!(completed("remap-ssd comp").trim(), "compare completions");
    assert_eq!(completed("remap-ssd compare --dup").trim(), "--duplicates");
    assert_eq!(completed("remap-ssd share snap").trim(), "snapshot");
}

#[test]
fn every_command_has_a_manual_page() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("man1");
    run(&["manual", folder.to_str().unwrap()]).ok();

    for name in ["remap-ssd", "remap-ssd-compare", "remap-ssd-share-snapshot"] {
        let page = std::fs::read_to_string(folder.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        // A page is found by the name in its first section.
        assert!(page.contains(&name.replace('-', "\\-")), "{name}");
    }

    let compare = std::fs::read_to_string(folder.join("remap-ssd-compare.1")).unwrap();
    assert!(
        compare.contains("\\-\\-duplicates"),
        "its options are there"
    );
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let below = file.join("man1");
    run(&["manual", below.to_str().unwrap()]).fails(1, &["man1"]);
}
