//! A random script on a disk that loses power, and the contents required afterwards.

use super::*;

/// State after a step.
#[derive(Clone, Debug)]
pub struct Moment {
    /// Number of disk operations by then.
    pub operations: usize,
    /// Contents of the pages that the script uses.
    values: Vec<u64>,
    /// A cut after this leaves no older content.
    durable: bool,
}

/// A script and its history.
pub struct Script {
    setup: Setup,
    /// The pages that it uses, in groups of adjacent pages.
    pages: Vec<u64>,
    base: Contents,
    pub disk: MemDisk,
    subject: Option<Subject>,
    pub moments: Vec<Moment>,
    pub fresh: u64,
}

impl Script {
    /// Begins with the remains of a cut.
    pub fn begin(
        setup: Setup,
        pages: Vec<u64>,
        base: Contents,
        fresh: u64,
    ) -> Result<Self, String> {
        let disk = MemDisk::holding(setup.pages, base.clone());
        let mut subject = setup
            .open(disk.clone())
            .map_err(|error| error.to_string())?;
        let values: Vec<u64> = pages.iter().map(|page| subject.read(*page)).collect();
        let operations = disk.medium().log.len();
        let moments = vec![Moment {
            operations,
            values,
            durable: true,
        }];
        Ok(Self {
            setup,
            pages,
            base,
            disk,
            subject: Some(subject),
            moments,
            fresh,
        })
    }

    pub fn values(&self) -> Vec<u64> {
        self.moments.last().expect("there is one").values.clone()
    }

    fn after(&mut self, values: Vec<u64>, durable: bool) {
        let operations = self.disk.medium().log.len();
        self.moments.push(Moment {
            operations,
            values,
            durable,
        });
    }

    /// Index of a random run of `count` adjacent pages.
    fn place(&self, random: &mut Random, count: usize) -> usize {
        loop {
            let at = random.random_range(0..=self.pages.len() - count);
            if self.pages[at] + count as u64 == self.pages[at + count - 1] + 1 {
                return at;
            }
        }
    }

    fn numbers(&mut self, random: &mut Random, count: usize) -> Vec<u64> {
        let known = self.values();
        (0..count)
            .map(|_| match random.random_range(0..10) {
                0..4 => random.random_range(COMMON),
                4..7 => known[random.random_range(0..known.len())],
                _ => {
                    self.fresh += 1;
                    self.fresh
                }
            })
            .collect()
    }

    /// Runs one step; returns the first violation.
    pub fn step(&mut self, random: &mut Random) -> Result<(), String> {
        let mut values = self.values();
        let count = random.random_range(1..4);
        let at = self.place(random, count);
        match random.random_range(0..40) {
            0..2 => {
                self.page_range(|disk, page| disk.trim(page, count as u64), at);
                values[at..at + count].fill(0);
                self.after(values, false);
            }
            2..5 => {
                let from = self.place(random, count);
                // The simulated disk does not support sources that are also targets.
                let relocate = random.random_bool(0.3) && at.abs_diff(from) >= count;
                let (target, source) = (self.pages[at], self.pages[from]);
                let remap = DiskRemap {
                    target,
                    source,
                    pages: count as u32,
                    relocate,
                    atomic: false,
                };
                self.page_range(|disk, _| disk.remap(&remap), at);
                let moved = values[from..from + count].to_vec();
                if relocate {
                    values[from..from + count].fill(0);
                }
                values[at..at + count].copy_from_slice(&moved);
                self.after(values, false);
            }
            5..8 => {
                self.page_range(|disk, _| disk.flush(), at);
                self.after(values, true);
            }
            8 => {
                let disk = self
                    .subject
                    .take()
                    .expect("open")
                    .close()
                    .expect("it closes");
                self.reopen(disk)?;
            }
            9 => {
                // The process ends: state only in memory is lost.
                self.subject = None;
                self.dying(random);
                self.reopen(self.disk.clone())?;
            }
            10..12 => self.failing_write(random, at, count)?,
            _ => {
                let numbers = self.numbers(random, count);
                let data = contents(&numbers);
                self.page_range(|disk, page| disk.write(page, &data), at);
                values[at..at + count].copy_from_slice(&numbers);
                self.after(values, self.setup.window == 1);
            }
        }
        self.compare()
    }

    fn page_range(
        &mut self,
        work: impl FnOnce(
            &mut dyn remap_ssd_device::Disk<Error = crate::kit::Error>,
            u64,
        ) -> Result<(), crate::kit::Error>,
        at: usize,
    ) {
        let page = self.pages[at];
        work(self.subject.as_mut().expect("open").disk(), page).expect("the disk works");
    }

    /// Reopens the disk and checks its contents.
    pub fn reopen(&mut self, disk: MemDisk) -> Result<(), String> {
        let subject = self.setup.open(disk).map_err(|error| error.to_string())?;
        self.subject = Some(subject);
        let operations = self.disk.medium().log.len();
        let values = self.judge(operations)?;
        self.after(values, true);
        Ok(())
    }

    /// A process that is killed in the middle of an operation.
    pub fn dying(&mut self, random: &mut Random) {
        let changes = random.random_range(0..12);
        let Ok(mut subject) = self.setup.open(self.disk.dying_after(changes)) else {
            return;
        };
        // The disk may be older than the previous process's memory.
        let mut values: Vec<u64> = self.pages.iter().map(|page| subject.read(*page)).collect();
        self.after(values.clone(), false);
        for _ in 0..12 {
            let count = random.random_range(1..4);
            let at = self.place(random, count);
            let numbers = self.numbers(random, count);
            values[at..at + count].copy_from_slice(&numbers);
            let done = subject.disk().write(self.pages[at], &contents(&numbers));
            self.after(values.clone(), false);
            if done.is_err() {
                return;
            }
        }
    }

    /// A write during a transient failure of the disk: each page is old or new.
    fn failing_write(
        &mut self,
        random: &mut Random,
        at: usize,
        count: usize,
    ) -> Result<(), String> {
        let numbers = self.numbers(random, count);
        let (data, old, page) = (contents(&numbers), self.values(), self.pages[at]);
        self.disk.medium().fails_from_remap = Some(random.random_range(1..4));
        let subject = self.subject.as_mut().expect("open");
        let written = subject.disk().write(page, &data);
        self.disk.medium().fails_from_remap = None;
        if subject.disk().flush().is_err() {
            // A flush failed: the disk stays broken until reopened.
            self.subject = None;
            let mut values = old;
            values[at..at + count].copy_from_slice(&numbers);
            self.after(values, false);
            return self.reopen(self.disk.clone());
        }
        let mut values = old.clone();
        for (index, new) in (at..).zip(&numbers) {
            values[index] = subject.read(self.pages[index]);
            let known = values[index] == *new || values[index] == old[index];
            if !known || written.is_ok() && values[index] != *new {
                return Err(format!(
                    "page {}: {}, neither {} nor {new}",
                    self.pages[index], values[index], old[index]
                ));
            }
        }
        self.after(values, true);
        Ok(())
    }

    /// While it runs, each page holds the last content written.
    fn compare(&mut self) -> Result<(), String> {
        let values = self.values();
        let subject = self.subject.as_mut().expect("open");
        for (page, value) in self.pages.iter().zip(values) {
            let found = subject.read(*page);
            if found != value {
                return Err(format!("page {page} reads as {found}, not as {value}"));
            }
        }
        Ok(())
    }

    /// Checks the contents of the open disk, which was cut after `operations` operations; returns
    /// them.
    fn judge(&mut self, operations: usize) -> Result<Vec<u64>, String> {
        let over = self
            .moments
            .iter()
            .rposition(|moment| moment.operations <= operations)
            .expect("it was opened");
        let floor = self.moments[..=over]
            .iter()
            .rposition(|moment| moment.durable)
            .expect("the first one is");
        // Steps with the same number of operations, and the one in progress.
        let next = self
            .moments
            .iter()
            .rposition(|moment| moment.operations == operations)
            .unwrap_or(over + 1);
        let possible = &self.moments[floor..=next.max(over + 1).min(self.moments.len() - 1)];
        let subject = self.subject.as_mut().expect("open");
        if subject.counts_too_low() > 0 {
            return Err(format!("{} counts are too low", subject.counts_too_low()));
        }

        let mut values = Vec::new();
        for (index, page) in self.pages.iter().enumerate() {
            let found = subject.read(*page);
            if !possible.iter().any(|moment| moment.values[index] == found) {
                let values: Vec<u64> = possible.iter().map(|moment| moment.values[index]).collect();
                return Err(format!(
                    "page {page} reads as {found}, and was {values:?} since the last flush"
                ));
            }
            values.push(found);
        }
        Ok(values)
    }

    /// Contents after a cut at `operations`, keeping the unflushed operations chosen by `keep`.
    pub fn cut(&self, operations: usize, keep: impl FnMut(usize) -> bool) -> Contents {
        kept(&self.base, &self.disk.medium().log[..operations], keep)
    }

    pub fn unflushed(&self, operations: usize) -> usize {
        pending(&self.disk.medium().log[..operations])
    }

    /// Checks a cut, and the disk's behaviour afterwards.
    pub fn judge_cut(&mut self, operations: usize, left: &Contents) -> Result<(), String> {
        let disk = MemDisk::holding(self.setup.pages, left.clone());
        let open = |disk: &MemDisk| {
            self.setup
                .open(disk.clone())
                .map_err(|error| format!("it does not open: {error}"))
        };
        let before = self.subject.take();
        self.subject = Some(open(&disk)?);
        let judged = self.judge(operations);
        let subject = std::mem::replace(&mut self.subject, before);
        let mut values = judged?;

        // Continues: all common contents, and all on the disk, are written to other pages.
        let mut subject = subject.expect("it was opened");
        let numbers: Vec<u64> = COMMON
            .chain(values.clone())
            .filter(|number| *number != 0)
            .collect();
        for (round, number) in numbers.into_iter().enumerate() {
            let at = round % self.pages.len();
            subject
                .disk()
                .write(self.pages[at], &content(number))
                .map_err(|error| error.to_string())?;
            values[at] = number;
            let found = subject.read(self.pages[at]);
            if found != number {
                return Err(format!(
                    "after the cut {number} was written, and {found} was read"
                ));
            }
        }
        subject.close().map_err(|error| error.to_string())?;
        let mut subject = self.setup.open(disk).map_err(|error| error.to_string())?;
        for (page, value) in self.pages.iter().zip(values) {
            let found = subject.read(*page);
            if found != value || subject.counts_too_low() > 0 {
                return Err(format!(
                    "after the cut page {page} was closed as {value}, and opened as {found}"
                ));
            }
        }
        Ok(())
    }
}
