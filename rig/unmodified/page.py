"""The table, on the terminal and as a page with a picture beside it.

The section about kills comes from a separate run: rewriting it, or the rest, keeps the other part.

Absent: numbers in sentences. All figures of the page come from the runs that wrote it.
"""

import importlib.util
import os
import platform
import re

from served import Failure

HEAD = f"{'program':<24}{'dedup':>6}{'host pages':>12}{'flash pages':>13}{'hits':>10}{'host reads':>12}{'demotions':>11}{'seconds':>9}"
COLUMNS = ["host_pages", "flash_pages", "dedup_hits", "host_reads", "demotions"]

PAGE = """\
# Unmodified programs on the device

```sh
rig/programs --replay --page docs/programs.md            # all of this page; needs root on Debian, and matplotlib for the picture
rig/programs mariadb mariadb-nodoublewrite               # two rows of it, on the terminal
```

Each program runs on a file system on a loop device over the device's FUSE file (`serve --memory 1GiB --fuse FOLDER`). It runs twice, with
deduplication off and on (`--dedup on`), each time on a new device. The device counts pages of 4 KiB from before the program starts
until the file system is unmounted. *Host pages* are pages that the host wrote. *Flash pages* are pages that the device programmed,
its own metadata included. *Hits* are writes of content that the device already held. After each run the file system's check found no
errors, and both runs left the same data. The amount that RocksDB compacts and InnoDB flushes depends on the speed of the machine, so
compare flash pages per host page.

![flash pages for each page written, with deduplication, as a share of those without]({picture})

{table}
{worked}
| program | load |
| --- | --- |
{about}

{machine}.

## Use it with your database

Deduplication removes the cost of journals that hold whole pages. InnoDB's doublewrite buffer (`innodb_doublewrite`) and ext4's
`data=journal` write each page twice, the second time with the same bytes. PostgreSQL stores full pages inside log records, at
any offset. Few of them fill a whole page of 4 KiB, so deduplication saves less there.

On this device you can also switch the protection against torn pages off, with deduplication or without. The device writes each command of up to 1 MiB
whole or not at all, so a page that reaches it in one command is never torn. The conditions:

| database | switch off | conditions |
| --- | --- | --- |
| MariaDB | `innodb_doublewrite=0` | `innodb_flush_method=O_DIRECT`; with `fsync` MariaDB itself loses rows |
| PostgreSQL | `full_page_writes=off` | XFS with blocks of 8 KiB (`mkfs.xfs -b size=8192`, Linux 6.12 or newer) |

- *One device below.* The file system is on the device itself, or on a loop device with direct I/O. A RAID, LVM or a virtual disk in between may split commands.
- *One extent.* A page that crosses the end of an extent becomes two commands. InnoDB and PostgreSQL extend their files by whole pages, and with ext4 or XFS on blocks of 4 KiB each of
  15,000 to 26,000 page writes of a run was in one command. A fragmented file system does not guarantee this; XFS with blocks of the page's size does (`-b size=16384` for InnoDB).
- *Direct I/O, or one folio.* PostgreSQL writes through the page cache. With blocks of 4 KiB, the kernel may write back one half of a page before the other has changed. This is rare, and no cut
  has shown it. With blocks of 8 KiB, a page is always one folio.
- *Not merged beyond 1 MiB.* Over FUSE and NVMe the kernel's commands have at most 1 MiB.

Otherwise leave the protection on. So do on other drives, unless their unit is large enough: `cat /sys/block/DISK/queue/atomic_write_unit_max_bytes`. [The test](torture.md#databases-that-write-pages-in-place) cuts
power under both databases with the protection off: nothing is lost with units of 16 KiB (MariaDB) and 1 MiB (PostgreSQL), and data are lost with 4 KiB.

```sh
remap-ssd image create disk --size 8GiB --dedup on
mkdir folder mounted && remap-ssd serve --image disk --fuse folder &
loop=$(losetup --find --show --direct-io=on --sector-size 4096 folder/n1)
mkfs.ext4 "$loop" && mount "$loop" mounted               # then: datadir = .../mounted/mysql
```
{kills}
## Where sharing undoes redundancy

Some systems write everything twice to survive a bad page: Btrfs with `-d dup` (the row `btrfs-dup`), or a mirror of two namespaces of one
device. With deduplication both copies share one flash page, and if that page cannot be read, both are lost. Use two devices,
`--dedup off`, or a namespace that shares nothing: `image create disk --size 8GiB --dedup on --namespaces 2 --unshared 2` deduplicates in
namespace 1 and programs every page written or copied in namespace 2.
{replayed}{missed}"""

KILLS_HEADING = "## When the device is killed under them"
KILLS = """
{heading}

```sh
{command}
```

`serve` is killed with SIGKILL at a random moment while the program runs, and restarted on its folder: {count} times for each program and setting,
each time on a new copy of a prepared image. Mounting replays the file system's journal. Then the file system's
check must find no errors, and all data from before the run and all synced data must be intact. During the run, two clients of each
database commit rows and record every acknowledged commit outside the device. All of these commits must be present, in order, with their contents
and with the other table that they changed; only the one commit under way may be present in addition. The same holds for SQLite's
commits if each is synced. For files that fio, `cp`, git, RocksDB or a compiler was writing at the kill, the test requires only
a clean file system and, for RocksDB, valid checksums.

| program | deduplication | kills, all well | commits acknowledged before them, all there |
| --- | --- | ---: | ---: |
{lines}

The number of commits depends on how busy the machine is. The test
detects databases that break their promise: the first kill catches MariaDB with `innodb_flush_log_at_trx_commit=0` and
PostgreSQL with `synchronous_commit=off`.
"""

WORKED = """
The number of pages that InnoDB writes depends on the speed of the machine. So MariaDB's runs are compared by flash pages per InnoDB page of
16 KiB, its log included:

{table}
"""

REPLAYED = """
## The same requests under each scheme

All requests from creating the file system to unmounting it were recorded (`serve --record`). They were replayed (`compare --trace`) on the
default device, aged, once without deduplication and once with it under each scheme. Flash pages:

{tables}
"""


def line(result):
    return (
        f"{result['program']:<24}{result['dedup']:>6}{result['host_pages']:>12,}{result['flash_pages']:>13,}"
        f"{result['dedup_hits']:>10,}{result['host_reads']:>12,}{result['demotions']:>11,}{result['seconds']:>9.1f}"
    )


def kills_line(result):
    acknowledged = "" if result["acknowledged"] is None else f"; {result['acknowledged']:,} acknowledged commits are there"
    return f"{result['program']:<24}{result['dedup']:>6}  {result['kills']} kills within {result['seconds']} s: the file system is clean, earlier data are intact{acknowledged}"


def row(cells):
    return f"| {' | '.join(cells)} |"


def table(results):
    lines = [row(["program", "dedup", "host pages", "flash pages", "hits", "host reads", "demotions", "seconds"])]
    lines.append(row(["---", "---", *["---:"] * 6]))
    for result in results:
        counts = [f"{result[column]:,}" for column in COLUMNS]
        lines.append(row([result["program"], result["dedup"], *counts, f"{result['seconds']:.1f}"]))
    return "\n".join(lines)


def worked(results):
    """For programs that report their work: flash pages per page of theirs."""
    lines = [
        row([result["program"], result["dedup"], f"{result['work']:,}", f"{result['flash_pages'] / result['work']:.2f}"])
        for result in results
        if result["work"]
    ]
    if not lines:
        return ""
    heads = [row(["program", "dedup", "pages that InnoDB wrote", "flash pages for each"]), row(["---", "---", "---:", "---:"])]
    return WORKED.format(table="\n".join([*heads, *lines]))


def replayed(results):
    """A line for each program, a column for each scheme; empty if nothing was replayed."""
    recorded = [result for result in results if "replayed" in result]
    if not recorded:
        return ""
    runs = [(run["scheme"], run["dedup"]) for run in recorded[0]["replayed"]]
    heads = [scheme if dedup == "on" else "without deduplication" for scheme, dedup in runs]
    lines = [row(["program", *heads]), row(["---", *["---:"] * len(heads)])]
    for result in recorded:
        found = {(run["scheme"], run["dedup"]): run["flash_pages"] for run in result["replayed"]}
        lines.append(row([result["program"], *(f"{found[run]:,}" for run in runs)]))
    return REPLAYED.format(tables="\n".join(lines))


def machine():
    with open("/proc/meminfo") as lines:
        gibibytes = int(lines.readline().split()[1]) / (1 << 20)
    return f"{os.cpu_count()} processors ({platform.machine()}), {gibibytes:.0f} GiB of memory, Linux {platform.release()}"


def can_draw():
    return importlib.util.find_spec("matplotlib") is not None


def draw(path, results):
    """One bar per program: flash pages per page written, with deduplication, as a share of those without. Per page written, since
    the amount that a store compacts or flushes depends on the machine's speed."""
    import matplotlib

    matplotlib.use("svg")
    # Equal results give equal files.
    matplotlib.rcParams["svg.hashsalt"] = "programs"
    from matplotlib import pyplot

    found = {(result["program"], result["dedup"]): result["flash_pages"] / result["host_pages"] for result in results}
    names = [name for name, dedup in found if dedup == "off" and (name, "on") in found]
    shares = [100 * found[name, "on"] / found[name, "off"] for name in names]

    figure, axes = pyplot.subplots(figsize=(8, 0.36 * len(names) + 1), layout="constrained")
    bars = axes.barh(names, shares, color="#2a6f97")
    axes.bar_label(bars, [f"{share:.0f} %" for share in shares], padding=3)
    axes.axvline(100, color="#888888", linewidth=1)
    axes.set_xlim(0, 115)
    axes.set_xlabel("flash pages for each page written, with deduplication, % of those without")
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def kills_of(path):
    """The section about kills in the existing page; empty if there is none."""
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        found = re.search(rf"\n{re.escape(KILLS_HEADING)}\n.*?\n(?=\n## |\Z)", file.read(), re.DOTALL)
    return found[0] if found else ""


def write_kills(path, results, command):
    """Writes the findings into the existing page."""
    if not results:
        raise Failure("nothing was killed, so there is nothing to write")
    lines = []
    for result in results:
        acknowledged = "" if result["acknowledged"] is None else f"{result['acknowledged']:,}"
        lines.append(row([result["program"], result["dedup"], str(result["kills"]), acknowledged]))
    text = KILLS.format(
        heading=KILLS_HEADING,
        command=command,
        count=results[0]["kills"],
        lines="\n".join(lines),
    )
    with open(path) as file:
        page = file.read()
    before = kills_of(path)
    # A page without the section gets it before the warnings.
    page = page.replace(before, text) if before else page.replace("\n## Where sharing", f"{text}\n## Where sharing", 1)
    with open(path, "w") as file:
        file.write(page)


def write(path, results, sentences, short):
    picture = f"{os.path.splitext(path)[0]}.svg"
    draw(picture, results)

    about = {result["program"]: result["about"] for result in results}
    missed = "".join(f"- {sentence}.\n" for sentence in sentences)
    text = PAGE.format(
        picture=os.path.basename(picture),
        table=table(results),
        worked=worked(results),
        about="\n".join(row([name, what]) for name, what in about.items()),
        kills=kills_of(path),
        machine=machine() + ("; a tenth of the work (`--short`)" if short else ""),
        replayed=replayed(results),
        missed=f"\n## Limits that were missed\n\n{missed}" if missed else "",
    )
    with open(path, "w") as file:
        file.write(text)
