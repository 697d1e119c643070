"""Executes a notebook, with other values of its first cell's names, and prints its outputs.

usage: notebook.py FILE NAME=VALUE...

Runs in the environment build/python."""
import json
import os
import sys

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager


def main():
    notebook = nbformat.read(sys.argv[1], as_version=4)
    first = next(cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ()))
    values = dict(word.split("=", 1) for word in sys.argv[2:])
    first.source += "".join(f"\n{name} = {value}" for name, value in values.items())
    # Ports that are free now may be another's soon; sockets lie beside the notebook.
    kernel = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=os.path.splitext(sys.argv[1])[0])
    nbclient.NotebookClient(notebook, km=kernel, timeout=None, startup_timeout=600).execute()
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            print(json.dumps({"cell": cell.id, "text": output.get("text") or output.get("data", {}).get("text/plain", ""),
                              "kinds": sorted(output.get("data", {}))}))


main()
