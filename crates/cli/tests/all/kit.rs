//! Runs the program and checks its output.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A device small enough for instant runs.
pub const TINY: &[&str] = &["--scale", "1/64", "--writes", "3000"];

/// Result of a run of the program.
pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

/// Runs the program in a directory.
pub fn run_in<S: AsRef<std::ffi::OsStr>>(directory: &Path, args: &[S]) -> Ran {
    run_with(directory, args, &[])
}

/// The same, with environment variables.
pub fn run_with<S: AsRef<std::ffi::OsStr>>(
    directory: &Path,
    args: &[S],
    variables: &[(&str, &str)],
) -> Ran {
    let program = env!("CARGO_BIN_EXE_remap-ssd");
    let output: Output = Command::new(program)
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(directory)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("the program writes UTF-8");
    let ran = Ran {
        code: output.status.code().unwrap_or(-1),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    assert!(!ran.err.contains("panicked"), "{}", ran.err);
    ran
}

/// Runs the program.
pub fn run(args: &[&str]) -> Ran {
    run_in(Path::new("."), args)
}

impl Ran {
    /// It succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}\n{}", self.out, self.err);
        self
    }

    /// It failed with this code and one sentence that contains all of these words.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}\n{}", self.out, self.err);
        words
            .iter()
            .for_each(|word| assert!(self.err.contains(word), "`{word}` is not in: {}", self.err));
        self
    }

    /// It failed with this code and exactly one line of error output.
    #[track_caller]
    pub fn fails_in_one_line(self, code: i32, words: &[&str]) -> Self {
        let ran = self.fails(code, words);
        assert_eq!(ran.err.trim_end().lines().count(), 1, "{}", ran.err);
        assert!(ran.err.starts_with("error: "), "{}", ran.err);
        ran
    }

    /// A campaign of `torture` with seed 5 failed because the one version of block 3 was lost. Both
    /// of its codes fail again in another process, with the recording that it saved in `directory`.
    /// Returns the code of the smallest failure.
    #[track_caller]
    pub fn replays_of_a_lost_block(&self, directory: &Path) -> String {
        assert_eq!(self.code, 1, "{}", self.err);
        let found = self.json();
        assert_eq!(found["seed"], 5);
        let smallest = &found["failure"]["smallest"];
        assert_eq!(
            smallest["lost"],
            serde_json::json!([{ "block": 3, "versions": 1 }])
        );

        let codes = [&found["failure"]["code"], &smallest["code"]].map(|code| {
            let code = code.as_str().expect("a code is text");
            let again = run_in(directory, &["torture", "--replay", code]);
            assert_eq!(again.code, 1, "{}", again.err);
            assert!(
                again.out.contains("status 1") && again.out.contains(code),
                "{}",
                again.out
            );
            code
        });
        codes[1].to_owned()
    }

    /// Its standard output is one JSON value.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out)
            .unwrap_or_else(|error| panic!("{error}\n{}\n{}", self.out, self.err))
    }
}

/// `compare` on a tiny device, as JSON.
#[track_caller]
pub fn compare(args: &[&str]) -> Value {
    run(&[&["compare", "--json"], TINY, args].concat())
        .ok()
        .json()
}

/// Collects the paths of nulls in a JSON value, which stand for numbers that are not finite.
pub fn nulls(value: &Value, path: &str, out: &mut Vec<String>) {
    match value {
        Value::Null => out.push(path.to_owned()),
        Value::Array(values) => values
            .iter()
            .enumerate()
            .for_each(|(at, value)| nulls(value, &format!("{path}[{at}]"), out)),
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| nulls(value, &format!("{path}.{name}"), out)),
        _ => {}
    }
}
