"""The tables, as Markdown on the terminal and in docs/sqlite-pages.md, and everything as JSON."""

import dataclasses
import json

from rows import per_cent

HEAD = """\
| workload | transactions | pages written, stock / ours | flash pages, stock | ours | least possible | fewer | goal | checkpoint remapped | old images copied | metadata pages a transaction | frames with a header page | intact |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"""


def line(result):
    row, median, figures = result["row"], result["median"], result["figures"]
    intact = all(run["integrity"] == "ok" for run in result["runs"]["stock"] + result["runs"]["ours"])
    cells = [
        row.name,
        f"{row.transactions:,}",
        f"{median['stock']['written']:,} / {median['ours']['written']:,}",
        f"{median['stock']['flash_pages']:,}",
        f"{median['ours']['flash_pages']:,}",
        f"{figures.floor:,}",
        f"{-result['saved'] * 100:+.1f} %",
        "" if row.goal is None else f"-{row.goal} %",
        "" if row.journal != "wal" else per_cent(figures.remapped),
        "" if row.journal == "wal" else per_cent(figures.images),
        "" if row.journal == "wal" else f"{figures.metadata:.3f}",
        "" if row.journal != "wal" else per_cent(figures.headers),
        "yes" if intact else "NO",
    ]
    return f"| {' | '.join(cells)} |"


def times(judged):
    """Seconds and transactions a second: no goal, since other programs use the machine too."""
    lines = ["| workload | seconds, stock | ours | transactions a second, stock | ours |", "| --- | --- | --- | --- | --- |"]
    for result in judged:
        stock, ours = result["seconds"]["stock"], result["seconds"]["ours"]
        count = result["row"].transactions
        lines.append(f"| {result['row'].name} | {stock:.1f} | {ours:.1f} | {count / stock:,.0f} | {count / ours:,.0f} |")
    return "\n".join(lines)


def write_json(path, judged, about):
    def plain(result):
        rest = {key: value for key, value in result.items() if key not in ("row", "figures")}
        return {**dataclasses.asdict(result["row"]), **dataclasses.asdict(result["figures"]), **rest}

    with open(path, "w") as file:
        json.dump({"machine": about, "rows": [plain(result) for result in judged]}, file, indent=2)
        file.write("\n")


PAGE = """\
# SQLite's flash pages, stock and with the extension

`rig/sqlite-pages --full` wrote this page. Each row runs one program on SQLite's own VFS on ext4 (a loop device over the device's
FUSE file), and the same program on the extension's VFS `remap` on a volume (over NVMe/TCP), on two fresh devices of the same kind, with the
same `synchronous`.

*Flash pages* are all pages that the device programmed, by its own count, from after `mkfs` and `mount`, or `volume create`, until everything is
unmounted, or closed, and flushed, including the metadata of ext4, the volume and the device. The extension keeps its locks in small
local files, which cost no flash. Garbage collection moved {moved} pages. Medians of {pairs} runs of each; the goals are whole per cents.
Afterwards each database was reopened and read: `integrity_check` was ok where *intact* is yes, and both arms held the same rows.

{about}.

{table}

WAL and rollback rows replace one row of 12,000 bytes among 6,000 keys in a transaction, which changes 4 to 8 pages; some rows are new,
some are overwritten. db_bench is LevelDB's `db_bench_sqlite3`, its synchronous benchmarks, with values of 16 KiB; it sets
`locking_mode = EXCLUSIVE`.

In the rows *cache spills*, a transaction replaces 30 rows with a cache of 20 pages. SQLite then writes frames before their checksums are
known, and later rewrites their headers alone, which need header pages. In a rollback journal each sync begins another segment with its own
metadata, and metadata are written again before a page of the database is overwritten whose image is not counted
yet.

## Goals that were missed

{missed}

## Goals out of reach

*Least possible* is the number of programs if nothing is written twice: each frame of the log, or each page that SQLite writes to
the database (less those that the volume already had and the device could share once more: a flash page has at most 15 owners) and one page
of metadata per transaction. If even this number misses a row's goal, the goal is listed here.

{beyond}

## Times

Times are for orientation only: stock goes through FUSE and the loop driver, the extension through NVMe/TCP; the device answers as fast as the machine computes
(`--latency none`), and the machine was not idle. Counts are reliable, times are not.

{times}
"""


def write_page(path, judged, about, given):
    missed = [f"- {result['row'].name}: {sentence}." for result in judged for sentence in result["missed"]]
    beyond = [f"- {result['row'].name}: {sentence}." for result in judged for sentence in result["out_of_reach"]]
    text = PAGE.format(
        pairs=given.pairs,
        about=about,
        moved=f"{sum(run['gc_pages'] for result in judged for runs in result['runs'].values() for run in runs):,}",
        table="\n".join([HEAD, *map(line, judged)]),
        missed="\n".join(missed) or "None.",
        beyond="\n".join(beyond) or "None.",
        times=times(judged),
    )
    with open(path, "w") as file:
        file.write(text)
