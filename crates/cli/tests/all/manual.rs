//! Shell completions, and manual pages for `man`.

use crate::kit::{run, run_with};
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

    // Values too.
    for (words, values) in [
        ("compare --scheme remap-ssd-", "remap-ssd-x remap-ssd-lh"),
        ("compare --gc cos", "cost-benefit"),
        ("compare --preset coldmap-", "coldmap-16g"),
        ("compare --workload fiu-", "fiu-homes fiu-mail fiu-webvm"),
        ("serve --latency em", "emulated"),
        ("serve --scheme wal", ""),
        ("image create --scheme fl", "flog"),
        ("torture --scheme nl", "nlog"),
        ("trace make --format blk", "blkparse"),
        ("trace stat --fold c", "compact"),
        ("bench --preset fast", "fast21-32g"),
    ] {
        let found = completed(&format!("remap-ssd {words}"));
        let found: Vec<&str> = found.split_whitespace().collect();
        let expected: Vec<&str> = values.split_whitespace().collect();
        let all = expected.iter().all(|value| found.contains(value));
        assert!(all, "{words}: {found:?}");
    }
}

#[test]
fn zsh_and_fish_get_the_values_as_well() {
    for shell in ["zsh", "fish"] {
        let script = run(&["completions", shell]).ok().out;
        for value in [
            "remap-ssd-x",
            "coldmap-16g",
            "emulated",
            "cost-benefit",
            "fiu-homes",
        ] {
            assert!(script.contains(value), "{shell}: {value}");
        }
    }
}

#[test]
fn help_and_tables_are_as_wide_as_the_window() {
    let here = std::path::Path::new(".");
    let widest = |text: &str| text.lines().map(|line| line.chars().count()).max();
    for command in ["compare", "serve", "torture"] {
        let help = |columns| {
            run_with(here, &[command, "-h"], &[("COLUMNS", columns)])
                .ok()
                .out
        };
        let (narrow, wide) = (help("60"), help("300"));
        // A usage is one line.
        let lines = narrow.lines().filter(|line| !line.starts_with("Usage:"));
        assert!(
            lines.clone().all(|line| line.chars().count() <= 60),
            "{narrow}"
        );
        assert!(widest(&wide) > Some(60), "{wide}");
    }

    let args = "compare --scheme none,remap-ssd --scale 1/64 --writes 1000 --no-aging";
    let table = |columns| run_with(here, args, &[("COLUMNS", columns)]).ok().out;
    let (narrow, wide) = (table("70"), table("200"));
    let rows = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("remap-ssd "))
            .count()
    };
    assert_eq!((rows(&narrow), rows(&wide)), (2, 1), "{narrow}");
    let of_table = narrow.split("\n\n").skip(1).take(2);
    assert!(
        of_table.clone().all(|block| widest(block) <= Some(70)),
        "{narrow}"
    );
}

#[test]
fn help_of_help_is_help() {
    let help = run("--help").ok().out;
    for words in ["help --help", "help -h", "help"] {
        assert_eq!(
            run(words).ok().out.lines().next(),
            help.lines().next(),
            "{words}"
        );
    }
    assert_eq!(
        run("help presets --help").ok().out,
        run("presets --help").ok().out
    );
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
    let inspect = std::fs::read_to_string(folder.join("remap-ssd-presets.1")).unwrap();
    assert!(
        inspect.contains("[\\-\\-toml <NAME>] [\\-\\-schema]"),
        "{inspect}"
    );

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
