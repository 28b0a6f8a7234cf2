//! The experiments' folders: those built into the program, and overriding folders on disk.
//!
//! Invariant: a folder on disk replaces the built-in one of the same name entirely. Absent: parsing
//! the texts (`config`).

use crate::LabError;
use std::collections::BTreeMap;
use std::path::Path;

/// The texts of one experiment's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder's name: the experiment's.
    pub name: String,
    /// Text of the mandatory `experiment.toml`.
    pub experiment: String,
    /// Text of `expectation.toml`; empty if there is none.
    pub expectation: String,
    /// Text of `README.md`; empty if there is none.
    pub readme: String,
}

/// All folders, and the papers' tables.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// In listing order.
    pub folders: Vec<Folder>,
    /// Tables of parameters by paper.
    pub papers: BTreeMap<String, String>,
}

macro_rules! library {
    (papers: $($paper:literal),*; folders: $($name:literal),*;) => {
        /// The folders built into the program.
        pub fn built_in() -> Library {
            Library {
                papers: BTreeMap::from([$((
                    $paper.to_owned(),
                    include_str!(concat!("../../../experiments/papers/", $paper, ".toml")).to_owned(),
                )),*]),
                folders: vec![$(Folder {
                    name: $name.to_owned(),
                    experiment: include_str!(concat!("../../../experiments/", $name, "/experiment.toml")).to_owned(),
                    expectation: include_str!(concat!("../../../experiments/", $name, "/expectation.toml")).to_owned(),
                    readme: include_str!(concat!("../../../experiments/", $name, "/README.md")).to_owned(),
                }),*],
            }
        }
    };
}

library! {
    papers: "fast21", "coldmap", "copyless", "pebble", "remapcom", "ours", "theory", "timing", "real";
    folders: "fast21-fig5", "fast21-fig6", "fast21-fig6-slice", "fast21-fig7", "fast21-fig8", "fast21-fig9", "coldmap-fig2", "coldmap-figs5-8", "coldmap-sweep", "copyless-sqlite", "copyless-ccaw", "pebble-micro", "pebble-bam", "pebble-f2fs", "remapcom", "recovery", "cost", "ours-small-nvram", "closed-forms", "agreement", "die-order", "real-flash", "mapping-cache", "indirection-units", "write-buffer", "buffered-remaps", "flushes", "recovery-parts", "slc-cache", "slc-bursts", "slc-dynamic";
}

impl Library {
    /// Adds the folders of a directory, replacing those of the same names.
    ///
    /// # Errors
    /// It cannot be read, or holds no experiment.
    pub fn lay_over(&mut self, directory: &Path) -> Result<(), LabError> {
        let about = |path: &Path, error: std::io::Error| LabError::wrong(path.display(), error);

        let mut names = Vec::new();
        for entry in std::fs::read_dir(directory).map_err(|error| about(directory, error))? {
            names.push(entry.map_err(|error| about(directory, error))?.path());
        }
        // Directory order is arbitrary; the list of experiments is sorted.
        names.sort();

        let papers = directory.join("papers");
        if papers.is_dir() {
            for entry in std::fs::read_dir(&papers).map_err(|error| about(&papers, error))? {
                let path = entry.map_err(|error| about(&papers, error))?.path();
                if let (Some(stem), true) = (
                    path.file_stem(),
                    path.extension().is_some_and(|e| e == "toml"),
                ) {
                    let text =
                        std::fs::read_to_string(&path).map_err(|error| about(&path, error))?;
                    self.papers
                        .insert(stem.to_string_lossy().into_owned(), text);
                }
            }
        }

        let mut found = false;
        for path in names
            .iter()
            .filter(|path| path.join("experiment.toml").is_file())
        {
            let read = |file: &str| {
                let path = path.join(file);
                std::fs::read_to_string(&path).map_err(|error| about(&path, error))
            };
            let optional = |file: &str| {
                if path.join(file).is_file() {
                    read(file)
                } else {
                    Ok(String::new())
                }
            };

            let folder = Folder {
                name: path
                    .file_name()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned(),
                experiment: read("experiment.toml")?,
                expectation: optional("expectation.toml")?,
                readme: optional("README.md")?,
            };

            self.folders.retain(|other| other.name != folder.name);
            self.folders.push(folder);
            found = true;
        }

        if found {
            Ok(())
        } else {
            Err(LabError::wrong(
                directory.display(),
                "holds no folder with an experiment.toml",
            ))
        }
    }

    /// The requested names, without duplicates; `all` or `list` alone stands for all.
    ///
    /// # Errors
    /// One of these two words stands beside other names.
    pub fn names(&self, asked: &[String]) -> Result<Vec<String>, LabError> {
        let is_word = |name: &&String| ["all", "list"].contains(&name.as_str());
        match (asked, asked.iter().find(is_word)) {
            ([_], Some(_)) => Ok(self.folders.iter().map(|one| one.name.clone()).collect()),
            (_, Some(word)) => Err(LabError::Wrong(format!(
                "`{word}` stands alone: leave the other names out"
            ))),
            (_, None) => {
                let mut names: Vec<String> = Vec::new();
                for name in asked {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
                Ok(names)
            }
        }
    }

    /// Returns a folder by name.
    ///
    /// # Errors
    /// Lists the valid names.
    pub(crate) fn folder(&self, name: &str) -> Result<&Folder, LabError> {
        self.folders
            .iter()
            .find(|folder| folder.name == name)
            .ok_or_else(|| {
                let names = self
                    .folders
                    .iter()
                    .map(|folder| folder.name.as_str())
                    .collect::<Vec<_>>()
                    .join(", ");
                LabError::Wrong(format!(
                    "no experiment is named `{name}`; there are {names}, and `all`"
                ))
            })
    }
}
