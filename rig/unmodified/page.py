"""The table, on the terminal and as a page with a picture beside it.

The section about kills is of another run, and stays when the rest is written again; so does the rest when that is.

Absent: numbers in sentences. The page says what the runs that wrote it have counted, nothing else.
"""

import importlib.util
import os
import platform
import re

from served import Failure

HEAD = f"{'program':<24}{'dedup':>6}{'host pages':>12}{'flash pages':>13}{'hits':>10}{'host reads':>12}{'demotions':>11}{'seconds':>9}"
COLUMNS = ["host_pages", "flash_pages", "dedup_hits", "host_reads", "demotions"]

PAGE = """\
# What the device does for programs that nobody changed

```sh
rig/programs --replay --page docs/programs.md            # all of this page; needs root on Debian, and matplotlib for the picture
rig/programs mariadb mariadb-nodoublewrite               # two rows of it, on the terminal
```

Each program runs on a file system, by way of a loop device over the device's FUSE file (`serve --memory 1GiB --fuse FOLDER`), once
with deduplication off and once with it on (`--dedup on`), each time on a fresh device. The device counts pages of 4 KiB, from before the
program starts until its file system is unmounted: *host pages* are those that it was asked to write, *flash pages* those that it
programmed for this, its own metadata included, *hits* the writes whose content was there already. Afterwards the file system's own check
found nothing, and what the programs wrote was the same in both. How much RocksDB compacts and InnoDB flushes depends on how fast the
machine is: compare by host pages.

![flash pages for each page written, with deduplication, as a share of those without]({picture})

{table}
{worked}
| program | what it does |
| --- | --- |
{about}

{machine}.

## Use it with your database

Journals that hold whole pages are what deduplication takes back: the doublewrite buffer of InnoDB (`innodb_doublewrite`), and
ext4's `data=journal`, write each page twice, the second time with the same bytes. Keep them on. PostgreSQL's full pages are inside
records of its log, at any offset: few of them are whole pages of 4 KiB that come back, so less is won.

The device writes a page of 4 KiB whole or not at all, and promises nothing of that kind for more. So the doublewrite buffer may be switched off where
InnoDB's pages are that small (`innodb_page_size=4k`, chosen when the data directory is made), on a file system of 4 KiB blocks. With InnoDB's usual 16 KiB a
power cut may tear a page, and so with the 8 KiB of PostgreSQL: `full_page_writes` stays on.

```sh
remap-ssd image create disk --size 8GiB --dedup on
mkdir folder mounted && remap-ssd serve --image disk --fuse folder &
loop=$(losetup --find --show --direct-io=on folder/n1)
mkfs.ext4 "$loop" && mount "$loop" mounted               # then: datadir = .../mounted/mysql
```
{kills}
## Where sharing undoes redundancy

A file system that writes everything twice to survive a bad page (Btrfs with `-d dup`, the row `btrfs-dup`; a mirror of two
namespaces of one device) has one flash page for both copies with deduplication: a page that cannot be read is lost twice. Use two
devices, or `--dedup off`, or a namespace of its own that shares nothing: `image create disk --size 8GiB --dedup on --namespaces 2 --unshared 2`
deduplicates in namespace 1, and programs each page that is written or copied in namespace 2.
{replayed}{missed}"""

KILLS_HEADING = "## When the device is killed under them"
KILLS = """
{heading}

```sh
{command}
```

`serve` is killed with SIGKILL at a moment that is drawn, while the program runs, and started again on what its folder has: {count} times for each program
and setting, each time on a new copy of an image with what the program needs. The file system's journal is replayed by mounting it; its own check finds nothing
then, and the program's own finds what was there beforehand, whole, and what was synced, the same. Two clients of each database commit rows besides, and
put each commit that is acknowledged on record beside the device: all of them must be there, in order, each with its content and with the
other table that it changed, and at most the one more that was under way. So with SQLite's commits where each is synced. Of a file that fio, `cp`, git, RocksDB
or a compiler was making when the device was killed nothing is asked but that the file system is clean, and that RocksDB's checksums fit.

| program | deduplication | kills, all well | commits acknowledged before them, all there |
| --- | --- | ---: | ---: |
{lines}
{spared}
How many commits there are depends on how busy the machine is. MariaDB without its doublewrite buffer has pages of 4 KiB here. A database that does not keep its promise is noticed: MariaDB with
`innodb_flush_log_at_trx_commit=0` and PostgreSQL with `synchronous_commit=off` are caught by the first kill.
"""

WORKED = """
How many pages InnoDB writes depends on how fast the machine is, so the runs of MariaDB are compared by what each of its pages of 16 KiB
costs, its log included:

{table}
"""

REPLAYED = """
## The same requests under each scheme

What the device was asked, from making the file system to unmounting it, was recorded (`serve --record`) and replayed (`compare --trace`) on
the default device, aged, with deduplication under each scheme, and without it. Flash pages:

{tables}
"""


def line(result):
    return (
        f"{result['program']:<24}{result['dedup']:>6}{result['host_pages']:>12,}{result['flash_pages']:>13,}"
        f"{result['dedup_hits']:>10,}{result['host_reads']:>12,}{result['demotions']:>11,}{result['seconds']:>9.1f}"
    )


def kills_line(result):
    acknowledged = "" if result["acknowledged"] is None else f"; {result['acknowledged']:,} acknowledged commits are there"
    return f"{result['program']:<24}{result['dedup']:>6}  {result['kills']} kills within {result['seconds']} s: the file system is clean, what was there is whole{acknowledged}"


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
    """For programs that say how much they did: flash pages for each page of theirs."""
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
    """One bar a program: flash pages for each page that it wrote, with deduplication, as a share of those without. By pages written, since
    how much a store compacts or flushes depends on how fast the machine is."""
    import matplotlib

    matplotlib.use("svg")
    # The same results are the same file.
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
    """The section about kills of the page that is there; empty if there is none."""
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        found = re.search(rf"\n{re.escape(KILLS_HEADING)}\n.*?\n(?=\n## |\Z)", file.read(), re.DOTALL)
    return found[0] if found else ""


def write_kills(path, results, spared, command):
    """Puts what was found into the page that is there. `spared`: why a program was not killed, by its name."""
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
        spared="".join(f"\nNot killed: {name}. {reason}.\n" for name, reason in spared.items()),
    )
    with open(path) as file:
        page = file.read()
    before = kills_of(path)
    # A page without the section has its place: before what warns.
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
