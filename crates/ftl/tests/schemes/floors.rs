//! The layers of the firmware: which module may use which, and that nothing outside `scheme/`
//! depends on a scheme.
//!
//! A module may use modules of its own layer or below, without circles. Circles are looked for in
//! the other crates too. `Ftl`'s methods are spread over the verbs, which call each other as
//! methods; the test checks the names in a file.

use remap_ssd_ftl::SchemeKind;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Every module of the crate, from the bottom up. A folder's name covers all of its files.
const FLOORS: &[(&str, &[&str])] = &[
    (
        "ground: words, choices, tables",
        &[
            "clock", "dedup", "dies", "error", "mapping", "names", "policy", "stats",
        ],
    ),
    ("configuration as data", &["config"]),
    ("space", &["core", "gc::due", "records", "superblock"]),
    ("contract", &["contract", "gc::job", "recovery::witnesses"]),
    ("schemes", &["scheme"]),
    ("assembly", &["config::limits", "ftl", "scheme::catalogue"]),
    ("verbs", &["gc", "recovery", "verbs"]),
];

/// Sources outside `scheme/` that may name schemes: the results of a paper's figures refer to its
/// schemes by name, and what traces the firmware for its proof reads their records independently of them.
const NAMED_IN: &[&str] = &[
    "crates/lab/src/analysis",
    "crates/lab/src/folder.rs",
    "crates/crash/src/steps",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The code of a file, without comments and unit tests.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).expect("a source file");
    let text = text.split("#[cfg(test)]").next().expect("a first part");
    text.lines()
        .map(|line| line.split("//").next().expect("a first part"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn module(src: &Path, path: &Path) -> Vec<String> {
    let inside = path.strip_prefix(src).expect("inside").with_extension("");
    let mut parts: Vec<String> = inside
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect();
    if parts
        .last()
        .is_some_and(|last| ["mod", "lib", "main"].contains(&last.as_str()))
    {
        parts.pop();
    }
    parts
}

/// The paths that begin with `crate` or `super` in a file's code, with braces expanded.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| is_word(c) || c == ':') {
                continue;
            }
            expand(&code[at..], Vec::new(), &mut found);
        }
    }
    found
}

/// Expands a path and its braces; returns the rest of the text.
fn expand<'a>(mut text: &'a str, mut path: Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    loop {
        text = text.trim_start();
        let end = text
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .unwrap_or(text.len());
        path.push(text[..end].to_owned());
        text = &text[end..];

        let Some(rest) = text.strip_prefix("::") else {
            found.push(path);
            return text;
        };
        let Some(list) = rest.strip_prefix('{') else {
            text = rest;
            continue;
        };
        text = list;
        while !text.trim_start().starts_with('}') && !text.is_empty() {
            text = expand(text, path.clone(), found);
            // Skips a renaming, a generic argument or a comma.
            let next = text.find([',', '}']).unwrap_or(text.len());
            text = text[next..].trim_start_matches(',');
        }
        return text.trim_start().strip_prefix('}').unwrap_or("");
    }
}

/// A module: the parts of its name, and its code.
type Module = (Vec<String>, String);

/// The modules of the crate with these sources, without those of unit tests.
fn modules(src: &Path) -> Vec<Module> {
    sources(src)
        .iter()
        .map(|path| (module(src, path), code(path)))
        .filter(|(parts, _)| !parts.is_empty() && parts.last().is_none_or(|last| last != "tests"))
        .collect()
}

fn firmware() -> BTreeMap<String, BTreeSet<String>> {
    imports(&modules(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")))
}

/// The other modules that each module names. A file and the files of its folder are one module.
fn imports(modules: &[Module]) -> BTreeMap<String, BTreeSet<String>> {
    let known: BTreeSet<String> = modules.iter().map(|(parts, _)| parts.join("::")).collect();
    let longest_known = |path: &[String]| {
        (1..=path.len())
            .rev()
            .map(|len| path[..len].join("::"))
            .find(|name| known.contains(name))
    };

    let mut all = BTreeMap::new();
    for (parts, code) in modules {
        let name = parts.join("::");
        let mut used = BTreeSet::new();
        for path in paths(code) {
            let mut rest = &path[..];
            let mut base: Vec<String> = match path[0].as_str() {
                "crate" => Vec::new(),
                _ => parts.clone(),
            };
            while let Some(first) = rest.first()
                && (first == "super" || first == "crate")
            {
                if first == "super" {
                    base.pop();
                }
                rest = &rest[1..];
            }
            base.extend(rest.iter().cloned());
            used.extend(longest_known(&base));
        }
        // The parts of a folder may use its head.
        used.retain(|other| *other != name && !name.starts_with(&format!("{other}::")));
        all.insert(name, used);
    }
    all
}

/// A module's layer: that of the longest name in the list that equals it or contains it.
fn floor(module: &str) -> Option<usize> {
    let names = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(floor, (_, names))| names.iter().map(move |name| (floor, *name)));
    names
        .filter(|(_, name)| module == *name || module.starts_with(&format!("{name}::")))
        .max_by_key(|(_, name)| name.len())
        .map(|(floor, _)| floor)
}

#[test]
fn no_module_knows_what_is_above_its_floor() {
    let mut wrong = Vec::new();
    for (module, used) in firmware() {
        let Some(own) = floor(&module) else {
            wrong.push(format!("{module} is on no floor"));
            continue;
        };
        for other in used {
            if floor(&other).is_some_and(|floor| floor > own) {
                wrong.push(format!("{module} ({}) names {other}", FLOORS[own].0));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules that are in a circle, or between two circles.
fn circles(imports: BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    // Removes those that name none of the others, and those that none of the others names, until
    // nothing changes.
    let mut left = imports;
    loop {
        let before = left.len();
        let named: BTreeSet<String> = left.values().flatten().cloned().collect();
        let names: BTreeSet<String> = left.keys().cloned().collect();
        left.retain(|name, used| named.contains(name) && !used.is_disjoint(&names));

        if left.len() == before {
            return names;
        }
    }
}

/// The folders of all crates, from the root of the repository.
fn crates() -> Vec<PathBuf> {
    let root = root();
    let mut found = Vec::new();
    for folder in ["crates", "hosts"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("a folder of crates") {
            let path = entry.expect("an entry").path();
            if path.join("src").is_dir() {
                found.push(path.strip_prefix(&root).expect("inside").to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn no_modules_of_a_crate_know_each_other_in_a_circle() {
    let mut wrong = Vec::new();
    for name in crates() {
        let left = circles(imports(&modules(&root().join(&name).join("src"))));
        if !left.is_empty() {
            wrong.push(format!("{}: {left:?}", name.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_circle_is_found_without_what_depends_on_it() {
    let module = |name: &str, code: &str| {
        let parts = name.split("::").map(str::to_owned).collect();
        (parts, code.to_owned())
    };
    let planted = [
        module("above", "use crate::{below, left::Left};"),
        module("left", "use crate::right::{self, Right};"),
        module("right", "use super::middle::inner::Inner;"),
        module("middle", "mod inner;"),
        module(
            "middle::inner",
            "fn it() -> super::super::left::Left { crate::below::it() }",
        ),
        module("below", "use std::io;"),
    ];
    let expected = ["left", "middle::inner", "right"].map(str::to_owned);
    assert_eq!(circles(imports(&planted)), BTreeSet::from(expected));
}

#[test]
fn every_crate_is_looked_at() {
    let all = crates();
    for name in [
        "crates/cli",
        "crates/ftl",
        "crates/service",
        "crates/sim",
        "hosts/torture",
    ] {
        assert!(all.contains(&PathBuf::from(name)), "{name} in {all:?}");
    }
}

#[test]
fn the_lists_of_imports_are_not_empty() {
    let imports = firmware();
    assert!(imports.len() > 60, "{} modules", imports.len());
    assert!(imports["core"].contains("superblock"));
    assert!(imports["verbs::command"].contains("ftl"));
    assert!(imports["scheme::remap_ssd::reclaim"].contains("scheme::entry"));
}

/// The names of the constants in the catalogue's list.
fn variants() -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/scheme/catalogue.rs");
    let text = std::fs::read_to_string(src).expect("the catalogue");
    let (_, list) = text.split_once("\nschemes! {").expect("the list");
    let (list, _) = list.split_once("\n}").expect("its end");
    list.lines()
        .filter_map(|line| line.trim().split_once(" = "))
        .filter(|(name, _)| !name.starts_with("//"))
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[test]
fn no_scheme_is_named_outside_its_folder() {
    let variants = variants();
    assert_eq!(variants.len(), SchemeKind::ALL.len());
    let root = root();
    // The default scheme's name is also the program's, and the baseline's is an ordinary word.
    let names = SchemeKind::ALL
        .into_iter()
        .filter(|scheme| ![SchemeKind::default(), SchemeKind::BASELINE].contains(scheme))
        .map(|scheme| format!("\"{scheme}\""));
    let forbidden: Vec<String> = variants
        .iter()
        .map(|variant| format!("SchemeKind::{variant}"))
        .chain(names)
        .collect();

    let mut wrong = Vec::new();
    for path in ["crates", "hosts"]
        .iter()
        .flat_map(|dir| sources(&root.join(dir)))
    {
        let inside = path.strip_prefix(&root).expect("inside");
        let is_part = |name: &str| inside.iter().any(|part| part == name);
        let is_test = ["tests", "tests.rs", "benches", "examples", "target"]
            .iter()
            .any(|name| is_part(name));
        let may = inside.starts_with("crates/ftl/src/scheme")
            || NAMED_IN.iter().any(|place| inside.starts_with(place));
        if is_test || may || !is_part("src") {
            continue;
        }
        let code = code(&path);
        let named = forbidden.iter().filter(|name| {
            code.match_indices(name.as_str()).any(|(at, name)| {
                let next = code[at + name.len()..].chars().next();
                !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
            })
        });
        wrong.extend(named.map(|name| format!("{} names {name}", inside.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
