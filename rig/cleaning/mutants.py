"""The faults of hosts/f2fs/mutants, by file."""

import os

project = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def mutants_of(part):
    """Names of the faults in files whose names begin with `part`."""
    found, name = [], None
    with open(os.path.join(project, "hosts", "f2fs", "mutants")) as file:
        for line in file:
            keyword, _, rest = line.rstrip("\n").partition(" ")
            if keyword == "mutant":
                name = rest
            elif keyword == "file" and rest.startswith(part):
                found.append(name)
    return found
