"""Recordings of a device's commands (`serve --record`), in the form of experiments: `experiments/recordings/NAME.xz`."""

import lzma


def compact(source, to, device_mib, reads):
    """Leaves out times, contents, and reads of unwritten pages: `volume create` reads the whole device. `reads`: keep the other reads.

    Returns the number of lines.
    """
    lines = 0
    written = bytearray(device_mib << 8)
    with open(source) as recorded, lzma.open(to, "wt", preset=9 | lzma.PRESET_EXTREME) as kept:
        for line in recorded:
            _, verb, *fields = line.split()
            if verb == "W":
                # A write of unknown contents: the number of pages is enough.
                verb, fields = "N", [fields[0], str(len(fields) - 1)]

            page, count = (int(fields[0]), int(fields[1 if verb in "RND" else 2])) if verb in "RNDCM" else (0, 0)
            if verb in "NCM":
                written[page : page + count] = bytes([1]) * count
            elif verb == "R" and not (reads and any(written[page : page + count])):
                continue
            kept.write(" ".join(["0", verb, *fields]) + "\n")
            lines += 1
    return lines
