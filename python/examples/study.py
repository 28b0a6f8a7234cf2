"""A study of a publication's size: 12 schemes, 8 sizes of NVRAM, 6 workloads, 3 seeds, and its pictures.

An interrupted study resumes. At the default scale it takes some minutes; `--scale 1` is the published device, and should run on a
cluster: `--scheduler tcp://host:8786`. Needs pyarrow and matplotlib.
"""

import argparse
import collections
import pathlib
import statistics
import sys
import time

import remap_ssd

SCHEMES = ["none", "remap-ssd", "flog", "nlog", "opt", "unsafe", "pebble", "remap-ssd-x", "local-flash", "remap-ssd-lh", "wal-ssd", "shadow-oob"]
NVRAM = [mib << 20 for mib in (20, 40, 80, 120, 160, 200, 240, 320)]
WORKLOADS = ["randwrite", "zipf:0.99", "fileserver", "oltp", "fiu-mail", "journal"]
SEEDS = [1, 2, 3]

SKIP = [
    # `wal-ssd` remaps only pages that name their home, which only one workload has.
    {"scheme": "wal-ssd", "workload": [name for name in WORKLOADS if name != "journal"]},
    # Both its mapping tables are in NVRAM: they need 177 MiB.
    {"scheme": "pebble", "log_size": NVRAM[:5]},
]


def options():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--scale", default="1/256", help="size of the device as a share of 32 GiB")
    words.add_argument("--writes", help="pages of each run [default: twice the addressable ones]")
    words.add_argument("--into", type=pathlib.Path, default=pathlib.Path("study"), help="folder of results and pictures")
    words.add_argument("--scheduler", help="of a Dask cluster [default: processes of this machine]")
    words.add_argument("--workers", type=int, help="processes [default: one for each core]")
    words.add_argument("--part", type=int, default=1, metavar="N", help="every Nth value of each list, for a look")
    return words.parse_args()


def draw(study, folder):
    """A picture for each workload: write amplification over NVRAM, means of the seeds, ranges as bars."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for point, run in study:
        if run.write_amplification is not None:
            found[point["workload"]][point["scheme"], point["log_size"]].append(run.write_amplification)
    paths = []
    for workload, figures in found.items():
        figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
        for at, scheme in enumerate(SCHEMES):
            sizes = [size for size in NVRAM if (scheme, size) in figures]
            if not sizes:
                continue
            values = [figures[scheme, size] for size in sizes]
            means = [statistics.fmean(value) for value in values]
            spread = [[mean - min(value) for mean, value in zip(means, values)], [max(value) - mean for mean, value in zip(means, values)]]
            x = [size >> 20 for size in sizes]
            style = {"color": f"C{at % 10}", "marker": "os^vD<"[at % 6], "linestyle": "-" if at < 6 else "--"}
            axes.errorbar(x, means, yerr=spread, label=scheme, capsize=2, markersize=4, linewidth=1.2, **style)
        axes.set(title=workload, xlabel="remapping metadata of the whole device, MiB", ylabel="write amplification, flash pages per host page")
        figure.legend(loc="outside right upper", frameon=False)
        path = folder / f"_{workload.replace(':', '-')}.png"
        figure.savefig(path, dpi=120)
        pyplot.close(figure)
        paths.append(path)
    return paths


def main():
    words = options()
    grid = {"workload": WORKLOADS, "log_size": NVRAM, "scheme": SCHEMES, "seed": SEEDS}
    grid = {name: values[:: words.part] for name, values in grid.items()}
    skip = [{name: [value] if isinstance(value, str) else value for name, value in one.items()} for one in SKIP]
    began = time.monotonic()
    study = remap_ssd.sweep(
        grid, words.into, skip=skip, scale=words.scale, writes=words.writes, scheduler=words.scheduler, workers=words.workers, progress=sys.stderr.isatty()
    )
    print(f"{len(study)} points in {time.monotonic() - began:.0f} s")

    table = study.to_pandas(["scheme", "option.workload", "write_amplification"])
    means = table.pivot_table(index="scheme", columns="option.workload", values="write_amplification")
    print(means.round(3).to_string())
    print(*draw(study, words.into), sep="\n")


if __name__ == "__main__":
    main()
