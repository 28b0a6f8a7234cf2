"""Executes a notebook from beginning to end: `execute.py NOTEBOOK RESULT`. A cell that raises is a failure."""

import pathlib
import sys

import nbformat
from nbclient import NotebookClient

source, result = map(pathlib.Path, sys.argv[1:])
notebook = nbformat.read(source, as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(result.parent)}}).execute()

pictures = sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
if pictures == 0:
    sys.exit(f"{source.name}: no cell drew a picture")

# Leaves out data that depend on the day or the machine, so that equal figures give equal files.
notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
for cell in notebook.cells:
    cell.metadata = {}
nbformat.write(notebook, result)
print(f"{source.name}: {len(notebook.cells)} cells, {pictures} pictures")
