"""The workloads measured: one row of the table each, with its goals.

A goal is the reduction in flash pages relative to stock, in whole per cents. The shares of remapped pages, metadata
pages per transaction and headers have separate goals (`Row.checks`), which hold for any number of transactions.
"""

from dataclasses import dataclass

# Of the pages that a checkpoint moves, and of the old images that a journal takes.
LEAST_SHARED = 0.99
# A journal has one metadata page a transaction; making the table is a transaction too.
MOST_METADATA = 1.01
# Of the frames, those whose headers have a page of their own.
MOST_HEADERS = 0.01
# Allowance above SQLite's own pages, written once: the volume's metadata, the device's own (one page in 290), and one-time costs.
MOST_ABOVE_FLOOR = 0.01
PAID_ONCE_PAGES = 30
# One-time costs weigh more with fewer transactions: goals are lower by this number of per cents there.
SHORT_ALLOWANCE = 3

# Of db_bench.
VALUE_BYTES = 16384


@dataclass(frozen=True)
class Row:
    """A workload and its goals."""

    name: str
    journal: str
    synchronous: str
    transactions: int
    goal: int | None
    # Rows replaced in a transaction, and pages of SQLite's cache if it is not as large as usual.
    rows: int = 1
    cache: int | None = None
    benchmark: str | None = None

    @property
    def spills(self):
        return self.cache is not None

    def settings(self):
        return {
            "journal": self.journal,
            "synchronous": self.synchronous,
            "transactions": self.transactions,
            "rows": self.rows,
            "keys": 6000,
            "cache": self.cache,
        }

    def arguments(self):
        """A row of db_bench, whose synchronous benchmarks write a hundredth of the number requested."""
        return [
            f"--benchmarks={self.benchmark}",
            f"--num={self.transactions * 100}",
            f"--value_size={VALUE_BYTES}",
            "--page_size=4096",
            f"--WAL_enabled={int(self.journal == 'wal')}",
        ]


def rows(short):
    """All rows; fewer transactions in the short form, which allows for one-time costs."""

    def row(name, journal, synchronous, transactions, goal, **more):
        if short:
            transactions //= 15 if "benchmark" in more else 5
            goal = goal and goal - SHORT_ALLOWANCE
        return Row(name, journal, synchronous, transactions, goal, **more)

    few = {"rows": 30, "cache": 20}
    return [
        row("WAL, NORMAL", "wal", "normal", 6000, 39),
        row("WAL, FULL", "wal", "full", 6000, 44),
        row("db_bench, random, WAL, FULL", "wal", "full", 15000, 50, benchmark="fillrandsync"),
        row("db_bench, sequential, WAL, FULL", "wal", "full", 15000, 44, benchmark="fillseqsync"),
        row("DELETE, FULL", "delete", "full", 2000, 65),
        row("TRUNCATE, FULL", "truncate", "full", 2000, 65),
        row("PERSIST, FULL", "persist", "full", 2000, 65),
        row("db_bench, random, DELETE, FULL", "delete", "full", 15000, 63, benchmark="fillrandsync"),
        row("db_bench, sequential, DELETE, FULL", "delete", "full", 15000, 63, benchmark="fillseqsync"),
        row("cache spills, WAL, FULL", "wal", "full", 200, 15, **few),
        row("cache spills, DELETE, FULL", "delete", "full", 200, 15, **few),
        row("DELETE, OFF", "delete", "off", 2000, None),
    ]


def share(part, *others):
    """A part of a sum; `None` if there is nothing."""
    whole = part + sum(others)
    return part / whole if whole else None


@dataclass
class Figures:
    """The extension's statistics of a row."""

    remapped: float | None = None
    images: float | None = None
    metadata: float | None = None
    headers: float | None = None
    # Pages that must be programmed if nothing is written twice: each frame, or each page of the database and one of metadata
    # for each transaction. Pages that the extension found elsewhere count where the device had to copy them: a flash page has 15
    # owners at most.
    floor: int = 0

    @classmethod
    def of(cls, row, statistics, demotions):
        database = statistics["database"]
        if row.journal == "wal":
            wal = statistics["wal"]
            directly = database["pages_written"] - database["pages_written_in_checkpoints"]
            return cls(
                remapped=share(database["pages_shared"], database["pages_written_in_checkpoints"]),
                headers=share(wal["frames_raw"], wal["frames_stamped"]),
                floor=wal["frames_raw"] + wal["frames_stamped"] + directly,
            )
        journal = statistics["journal"]
        images = share(journal["images_copied"], journal["images_not_equal"], journal["images_not_shareable"])
        found_in_vain = min(demotions, database["pages_shared_with_others"])
        return cls(
            images=images,
            metadata=journal["metadata_pages"] / row.transactions,
            floor=database["pages_written"] + found_in_vain + row.transactions,
        )

    def missed(self, row, flash_pages):
        """Sentences for the goals that these figures miss."""
        sentences = []
        most = self.floor * (1 + MOST_ABOVE_FLOOR) + PAID_ONCE_PAGES
        if not row.spills and flash_pages > most:
            sentences.append(f"{flash_pages:,} flash pages, where SQLite writes {self.floor:,}")
        if row.journal == "wal":
            if (self.remapped or 0) < LEAST_SHARED:
                sentences.append(f"{per_cent(self.remapped)} of the checkpointed pages were remapped")
            # A spilled page gets its final checksum later, by a header alone.
            if not row.spills and (self.headers is None or self.headers > MOST_HEADERS):
                sentences.append(f"{per_cent(self.headers)} of the frames need a header page")
        else:
            if (self.images or 0) < LEAST_SHARED:
                sentences.append(f"{per_cent(self.images)} of the old images were copied")
            # A journal that is synced before the transaction ends begins another segment.
            if not row.spills and self.metadata > MOST_METADATA:
                sentences.append(f"{self.metadata:.2f} metadata pages a transaction")
        return sentences


def per_cent(part):
    return "none" if part is None else f"{part * 100:.1f} %"
