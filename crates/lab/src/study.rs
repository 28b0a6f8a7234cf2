//! Processes several experiments from their folders to claims, figures and a page.
//!
//! ```text
//! plan: every folder read, every run checked -> run: those not in the store -> conclude: analyses, files, page
//! ```
//! Invariants: nothing runs before everything has been checked; the output depends on the runs'
//! results alone, not on which of them were made now. Absent: the terminal.

use crate::LabError;
use crate::analysis::{self, Analysis};
use crate::claim::{Claim, Expectation, judge};
use crate::concluded::Concluded;
use crate::config::{self, Experiment, Form, Paper, Variant};
use crate::error_bars::half_widths;
use crate::folder::Library;
use crate::grid::{GridRun, runs};
use crate::perform::{self, CheckedSources};
use crate::queue::{self, Demand, Limits};
use crate::store::Store;
use crate::table::{Row, Table};
use crate::variant::{self, VariantClaims};
use crate::{export, page};
use remap_ssd_device::Setting;
use remap_ssd_sim::report::format::bytes;
use remap_ssd_sim::report::sheet::TableForm;
use std::collections::BTreeMap;

/// Options for the runs.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Size of the experiments, which determines the lengths of their runs.
    pub form: Form,
    /// Threads and memory available to all runs.
    pub limits: Limits,
    /// Makes every run again, even if its result is stored.
    pub fresh: bool,
}

/// An experiment with its runs.
pub struct Planned {
    /// Name of the experiment's folder.
    pub name: String,
    /// Its `experiment.toml`, read and checked.
    pub(crate) experiment: Experiment,
    /// The claims that it is compared with.
    pub(crate) expectation: Expectation,
    /// Its `README.md`, for the report.
    pub readme: String,
    /// The paper's table of parameters.
    pub(crate) paper: Paper,
    /// Its runs, some of them shared with other experiments.
    pub runs: Vec<GridRun>,
    analysis: Analysis,
}

/// Experiments with checked files, ready to run.
pub struct Study {
    /// In the requested order.
    pub planned: Vec<Planned>,
    /// The same experiments under variants of their papers' inputs.
    pub variants: Vec<(Variant, Planned)>,
    /// Size of its experiments; shown in the report.
    pub form: Form,
}

/// Progress reports during runs.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// The missing runs begin.
    Begun {
        /// Runs to make.
        missing: usize,
        /// Runs of all experiments, each once.
        runs: usize,
        /// Of the stored ones, those made by another build of the program.
        others: usize,
        /// Sum of the weights of the missing runs.
        weight: f64,
    },
    /// Progress of one run, in units of weight.
    Worked(f64),
    /// A run has been made and stored.
    Done(&'a GridRun),
}

/// Reads experiments' folders.
struct Planner<'a> {
    library: &'a Library,
    form: Form,
    settings: &'a [Setting],
    sources: CheckedSources,
}

impl Planner<'_> {
    fn plan(&mut self, name: &str, variant: Option<&Variant>) -> Result<Planned, LabError> {
        let folder = self.library.folder(name)?;
        let about = format!("{name}/experiment.toml");
        let wrong = |error: &dyn std::fmt::Display| LabError::wrong(&about, error);
        let mut experiment: Experiment = config::read(&about, &folder.experiment)?;

        let papers = &self.library.papers;
        let text = papers.get(&experiment.paper).ok_or_else(|| {
            let known: Vec<&str> = papers.keys().map(String::as_str).collect();
            wrong(&format_args!(
                "there is no papers/{}.toml; there are {}",
                experiment.paper,
                known.join(", ")
            ))
        })?;
        let mut paper: Paper = config::read(&format!("papers/{}.toml", experiment.paper), text)?;
        if let Some(variant) = variant {
            paper = variant.of(&paper);
            let grids = experiment
                .runs
                .iter_mut()
                .filter(|_| variant.content.is_some());
            grids.for_each(|grid| grid.content = variant.content.iter().cloned().collect());
        }

        let expectation =
            Expectation::read(&format!("{name}/expectation.toml"), &folder.expectation)?;
        let analysis = analysis::find(&experiment.analysis).map_err(|error| wrong(&error))?;

        let runs = runs(name, &experiment, &paper, self.form, self.settings)?;
        for run in &runs {
            perform::check(run, &mut self.sources).map_err(|error| wrong(&error))?;
        }

        Ok(Planned {
            name: name.to_owned(),
            experiment,
            expectation,
            readme: folder.readme.clone(),
            paper,
            runs,
            analysis,
        })
    }
}

impl Planned {
    /// The results of its runs.
    fn table(&self, store: &Store) -> Result<Table, LabError> {
        let rows = self.runs.iter().map(|run| match store.load(run) {
            Some(found) => Ok(Row {
                run: run.clone(),
                result: found.result,
            }),
            None => Err(LabError::Failed(format!(
                "the result of run `{}` is not there",
                run.title()
            ))),
        });
        Ok(Table {
            rows: rows.collect::<Result<_, _>>()?,
        })
    }
}

impl Study {
    /// Reads and checks all folders.
    ///
    /// # Errors
    /// One sentence: the error.
    pub fn plan(library: &Library, names: &[String], form: Form) -> Result<Self, LabError> {
        Self::plan_with(library, names, form, &[])
    }

    /// Like `plan`, with these device settings overriding the papers'.
    ///
    /// # Errors
    /// One sentence: the error; also if an experiment sets such a value itself.
    pub fn plan_with(
        library: &Library,
        names: &[String],
        form: Form,
        settings: &[Setting],
    ) -> Result<Self, LabError> {
        let mut planner = Planner {
            library,
            form,
            settings,
            sources: CheckedSources::default(),
        };
        let planned = names.iter().map(|name| planner.plan(name, None));
        Ok(Self {
            planned: planned.collect::<Result<_, _>>()?,
            variants: Vec::new(),
            form,
        })
    }

    /// Adds the variants of its experiments.
    ///
    /// # Errors
    /// One sentence: the error.
    pub fn add_variants(
        &mut self,
        library: &Library,
        settings: &[Setting],
    ) -> Result<(), LabError> {
        let mut planner = Planner {
            library,
            form: self.form,
            settings,
            sources: CheckedSources::default(),
        };
        for planned in &self.planned {
            let named = planned
                .paper
                .variant
                .iter()
                .flat_map(|one| &one.experiments);
            for name in named {
                library.folder(name).map_err(|error| {
                    let file = format!("papers/{}.toml", planned.experiment.paper);
                    LabError::wrong(file, error)
                })?;
            }

            for variant in &planned.paper.variant {
                if variant.experiments.contains(&planned.name) {
                    let varied = planner.plan(&planned.name, Some(variant))?;
                    self.variants.push((variant.clone(), varied));
                }
            }
        }
        Ok(())
    }

    fn all_runs(&self) -> Vec<&GridRun> {
        let mut seen = BTreeMap::new();
        let mut all = Vec::new();
        let variants = self.variants.iter().map(|(_, planned)| planned);
        for run in self
            .planned
            .iter()
            .chain(variants)
            .flat_map(|one| &one.runs)
        {
            // Experiments share runs: each is made once.
            if seen.insert(run.key(), ()).is_none() {
                all.push(run);
            }
        }
        all
    }

    /// Makes the runs that are not in the store.
    ///
    /// # Errors
    /// A run needs more memory than there is for all; or one failed, or its result cannot be stored;
    /// earlier results are kept.
    pub fn run(
        &self,
        store: &Store,
        options: &Options,
        tell: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<(), LabError> {
        let all = self.all_runs();

        let (mut missing, mut others) = (Vec::new(), 0);
        for run in &all {
            match if options.fresh { None } else { store.load(run) } {
                Some(found) => others += usize::from(!found.same_program),
                None => missing.push(*run),
            }
        }

        let demands: Vec<Demand> = missing
            .iter()
            .map(|run| Demand {
                memory: run.memory_bytes(),
                weight: run.weight(),
            })
            .collect();

        let too_large = |(_, demand): &(&&GridRun, &Demand)| demand.memory > options.limits.memory;
        if let Some((run, demand)) = missing.iter().zip(&demands).find(too_large) {
            let [needed, given] = [demand.memory, options.limits.memory].map(bytes);
            return Err(LabError::Wrong(format!(
                "--memory: run `{}` needs about {needed}, and {given} are given",
                run.title()
            )));
        }

        let weight = demands.iter().map(|demand| demand.weight).sum();
        tell(Event::Begun {
            missing: missing.len(),
            runs: all.len(),
            others,
            weight,
        });

        // The heaviest runs determine the total time, so progress is in weights, not in runs.
        queue::run_all(&demands, options.limits, |job, cores| {
            let (run, weight) = (missing[job], demands[job].weight);
            // No progress is reported during aging: its share comes with the first page measured.
            let mut told = 0.0;
            let mut more = |share: f64| {
                let now = (share * weight).clamp(told, weight);
                tell(Event::Worked(now - told));
                told = now;
            };

            let result = perform::perform(run, cores, &mut more)
                .map_err(|error| LabError::Failed(format!("run `{}`: {error}", run.title())))?;
            // Whatever was reported before, a run ends with its whole weight: these add up to the
            // initial sum.
            more(1.0);
            store.save(run, &result)?;
            tell(Event::Done(run));
            Ok(())
        })
    }

    /// Turns the store's results into claims and figures, and writes all files.
    ///
    /// # Errors
    /// A result is missing, or a file cannot be written.
    pub fn conclude(&self, store: &Store) -> Result<Vec<Concluded>, LabError> {
        let mut concluded = Vec::new();
        for planned in &self.planned {
            let table = planned.table(store)?;
            let analyse = (planned.analysis)(&table);
            let found = analyse(&table)?;
            let half_widths = half_widths(&table, &analyse, &found.measures)?;
            let judged = |expected| judge(&planned.name, expected, &found.measures, &half_widths);

            let columns = export::columns(&table);
            // Some experiments are pure arithmetic: a table without rows would not open as a file.
            if !table.rows.is_empty() {
                store.write(
                    &format!("{}/results.csv", planned.name),
                    export::csv(&columns).as_bytes(),
                )?;
                store.write(
                    &format!("{}/results.parquet", planned.name),
                    &export::parquet(&columns),
                )?;
            }

            if let Some(table) = &found.table {
                let text = table.write(TableForm::Markdown);
                store.write(&format!("{}/table.md", planned.name), text.as_bytes())?;
            }

            for plot in &found.plots {
                store.write(
                    &format!("{}/{}.svg", planned.name, plot.name),
                    plot.svg().as_bytes(),
                )?;
            }

            concluded.push(Concluded {
                name: planned.name.clone(),
                title: planned.experiment.title.clone(),
                readme: planned.readme.clone(),
                paper: planned.paper.title.clone(),
                claims: judged(&planned.expectation.claim)?,
                findings: judged(&planned.expectation.finding)?,
                measures: found.measures,
                plots: found.plots,
                table: found.table,
                variants: None,
                runs: planned.runs.len(),
            });
        }

        let json = |list: &[&Claim]| {
            serde_json::to_string_pretty(list).expect("claims can be written as JSON") + "\n"
        };

        let varied = self.varied(store)?;
        if !varied.is_empty() {
            let text =
                serde_json::to_string_pretty(&varied).expect("claims can be written as JSON");
            store.write("variants.json", (text + "\n").as_bytes())?;
        }
        for one in &mut concluded {
            let own: Vec<&VariantClaims> = varied
                .iter()
                .filter(|of| of.experiment == one.name)
                .collect();
            if !own.is_empty() {
                let table = variant::table(&one.claims, &own);
                let text = table.write(TableForm::Markdown);
                store.write(&format!("{}/variants.md", one.name), text.as_bytes())?;
                one.variants = Some(table);
            }
        }

        let claims: Vec<&Claim> = concluded.iter().flat_map(|one| &one.claims).collect();
        let findings: Vec<&Claim> = concluded.iter().flat_map(|one| &one.findings).collect();
        store.write("claims.json", json(&claims).as_bytes())?;
        store.write("findings.json", json(&findings).as_bytes())?;
        store.write("report.html", page::page(&concluded, self.form).as_bytes())?;

        Ok(concluded)
    }

    /// Claims under each variant.
    fn varied(&self, store: &Store) -> Result<Vec<VariantClaims>, LabError> {
        let one = |(variant, planned): &(Variant, Planned)| {
            let table = planned.table(store)?;
            let analyse = (planned.analysis)(&table);
            let found = analyse(&table)?;
            let half_widths = half_widths(&table, &analyse, &found.measures)?;
            // Inputs were chosen for the experiment as it is: here they may be right or wrong.
            let mut claims = planned.expectation.claim.clone();
            claims.iter_mut().for_each(|one| one.is_calibrated = false);
            Ok(VariantClaims {
                experiment: planned.name.clone(),
                variant: variant.name.clone(),
                about: variant.about.clone(),
                claims: judge(&planned.name, &claims, &found.measures, &half_widths)?,
            })
        };
        self.variants.iter().map(one).collect()
    }
}
