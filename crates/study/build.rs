//! A digest of the sources that determine results, so that sweep results of another simulator are
//! distinguished: by the command line and by the Python package, which is built from the same
//! sources.

use std::fs;
use std::path::{Path, PathBuf};

/// Sources that determine results, relative to the workspace root.
const SOURCES: [&str; 6] = [
    "Cargo.lock",
    "crates/media/src",
    "crates/ftl/src",
    "crates/device/src",
    "crates/sim/src",
    "crates/study/src",
];

fn main() {
    // Computed at run time: a target folder may be shared by several copies of the tree.
    let package = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
    let workspace = Path::new(&package)
        .ancestors()
        .nth(2)
        .filter(|root| root.join("crates/sim/src").is_dir());
    let (root, sources) = match workspace {
        Some(root) => (root, &SOURCES[..]),
        // A package from a registry: its manifest has the exact versions of the other crates.
        None => (Path::new(&package), &["Cargo.toml", "src"][..]),
    };
    let mut files = Vec::new();
    for source in sources {
        println!("cargo::rerun-if-changed={}", root.join(source).display());
        gather(&root.join(source), &mut files);
    }
    files.sort();

    let mut digest = blake3::Hasher::new();
    for file in &files {
        // By their names in the workspace: the digest does not depend on its location.
        let name = file
            .strip_prefix(root)
            .expect("sources are below the root")
            .to_string_lossy();
        let content = fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));

        for part in [name.as_bytes(), &content] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    println!(
        "cargo::rustc-env=REMAP_SSD_SOURCES={}",
        &digest.finalize().to_hex()[..16]
    );
}

fn gather(path: &Path, files: &mut Vec<PathBuf>) {
    let Ok(folder) = fs::read_dir(path) else {
        return files.push(path.into());
    };
    folder
        .flatten()
        .for_each(|entry| gather(&entry.path(), files));
}
