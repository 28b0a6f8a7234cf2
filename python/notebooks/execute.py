"""Executes a notebook from beginning to end, and checks that its stored figures are still what it prints.

    execute.py NOTEBOOK RESULT              RESULT gets the notebook as executed
    execute.py NOTEBOOK NOTEBOOK            replaces the stored one

Figures follow from seeds, so printed text that differs is older than the code that it describes. Pictures and tables are not compared: they
depend on the versions of Matplotlib and pandas. Exit code 1 if a cell raises, if none draws a picture, or if text differs.
"""

import copy
import pathlib
import sys

import nbformat
from nbclient import NotebookClient


def texts(notebook):
    """What each cell prints."""
    return ["".join(output.get("text", "") for output in cell.get("outputs", [])) for cell in notebook.cells]


source, result = map(pathlib.Path, sys.argv[1:])
notebook = nbformat.read(source, as_version=4)
stored = texts(copy.deepcopy(notebook))
folder = pathlib.Path.cwd() if source == result else result.parent
NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}).execute()

pictures = sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
if pictures == 0:
    sys.exit(f"{source.name}: no cell drew a picture")

# Leaves out data that depend on the day or the machine, so that equal figures give equal files.
notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
for cell in notebook.cells:
    cell.metadata = {}
nbformat.write(notebook, result)

for number, (old, new) in enumerate(zip(stored, texts(notebook))):
    if old != new and source != result:
        sys.exit(f"{source.name}: cell {number} has stored\n{old}and prints\n{new}python/notebooks/execute.py stores it")
print(f"{source.name}: {len(notebook.cells)} cells, {pictures} pictures")
