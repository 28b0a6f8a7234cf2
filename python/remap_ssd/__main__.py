"""``python -m remap_ssd``: the part of ``remap-ssd sweep --scheduler`` that runs in this package."""

from __future__ import annotations

import argparse
import sys

from . import _native, _places, sweep
from ._errors import Failed


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m remap_ssd", description="Parts of `remap-ssd sweep --scheduler`.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("sources", help="digest of the sources that determine figures; needs the packages for a cluster")
    verbs.add_parser("digest", help="digest of the trace at an address").add_argument("address")
    sweeping = verbs.add_parser("sweep", help="runs the points of a grid that have no result")
    sweeping.add_argument("file", metavar="FILE.toml")
    sweeping.add_argument("--into", metavar="DIR")
    sweeping.add_argument("--scheduler", metavar="ADDRESS")
    sweeping.add_argument("--workers", metavar="N", type=int)
    sweeping.add_argument("--keep-going", action="store_true", help="if a point fails, run the others, and list the failures")
    words = parser.parse_args()

    try:
        if words.verb == "sources":
            import distributed  # noqa: F401
            import pyarrow  # noqa: F401

            print(_native.SOURCES)
        elif words.verb == "digest":
            print(_places.fetch(words.address, None))
        else:
            on_error, progress = "keep" if words.keep_going else "stop", sys.stderr.isatty()
            swept = sweep(words.file, words.into, workers=words.workers, scheduler=words.scheduler, progress=progress, on_error=on_error)
            print(swept)
            for failure in swept.failures:
                print(f"error: {failure['point']}: {failure['error']}", file=sys.stderr)
            return 1 if swept.failures else 0
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 1
    except (ImportError, OSError, TypeError, ValueError, Failed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
