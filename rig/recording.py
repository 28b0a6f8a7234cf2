"""Recordings of a device's commands (`serve --record`), in the form of experiments: `experiments/recordings/NAME.xz`."""

import lzma


def compact(source, to, device_mib, reads, flagged=False):
    """Leaves out the device, times, contents, and reads of unwritten pages: `volume create` reads the whole device. `reads`: keep the other
    reads. `flagged`: writes that move a page are remaps.

    Returns the number of lines.
    """
    lines = 0
    written = bytearray(device_mib << 8)
    moves = Moves()
    with open(source) as recorded, lzma.open(to, "wt", preset=9 | lzma.PRESET_EXTREME) as kept:
        for line in recorded:
            # The first line describes the device that was served; experiments have their own.
            if line.startswith("#"):
                continue
            _, verb, *fields = line.split()
            # A write of unknown contents: the number of pages is enough.
            requests = [(verb, fields)]
            if verb == "W" and flagged:
                requests = moves.split(int(fields[0]), fields[1:])
            elif verb == "W":
                requests = [("N", [fields[0], str(len(fields) - 1)])]

            for verb, fields in requests:
                page, count = (int(fields[0]), int(fields[1 if verb in "RND" else 2])) if verb in "RNDCM" else (0, 0)
                if verb in "NCM":
                    written[page : page + count] = bytes([1]) * count
                elif verb == "R" and not (reads and any(written[page : page + count])):
                    continue
                kept.write(" ".join(["0", verb, *fields]) + "\n")
                lines += 1
    return lines


class Moves:
    """Finds writes of contents that another page has: what a cleaner of a file system moves, if all files have different contents."""

    def __init__(self):
        self.at = {}
        self.page_of = {}

    def source(self, digest, target):
        """The page that has these contents now, or None."""
        page = self.page_of.get(digest)
        return page if page != target and self.at.get(page) == digest else None

    def split(self, first, digests):
        """The requests of a write: `N` of new contents, `C` from the page with the same ones, as long as possible."""
        parts = []
        for target, digest in enumerate(digests, first):
            source = self.source(digest, target)
            self.at[target], self.page_of[digest] = digest, target
            if parts and parts[-1][1] is None and source is None:
                parts[-1][2] += 1
            elif parts and None not in (source, parts[-1][1]) and source == parts[-1][1] + parts[-1][2]:
                parts[-1][2] += 1
            else:
                parts.append([target, source, 1])
        return [("N", [f"{at}", f"{pages}"]) if source is None else ("C", [f"{at}", f"{source}", f"{pages}"]) for at, source, pages in parts]
