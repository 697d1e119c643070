#!/usr/bin/env python3
"""Gives the graphs of golden.json their weights and makes the samples, as golden.py did:

    python tests/parity/fill.py FOLDER CASE...

writes FOLDER/GRAPH.onnx and FOLDER/CASE/COLUMN.npy. Needs numpy and onnx, but not PyTorch."""
import json
import os
import sys

import numpy
import onnx

import toy

HERE = os.path.dirname(os.path.abspath(__file__))


def main(folder, names):
    with open(os.path.join(HERE, "golden.json")) as file:
        cases = json.load(file)["cases"]
    for name in names:
        case = cases[name]
        os.mkdir(os.path.join(folder, name))
        for column, data in getattr(toy, case["task"])(case["steps"] * case["batch"], **case["task_options"]).items():
            numpy.save(os.path.join(folder, name, column), data)
        for graph in case["graphs"]:
            model = onnx.load(os.path.join(HERE, "graphs", graph))
            for tensor in model.graph.initializer:
                if tensor.doc_string:
                    toy.fill(tensor)
            onnx.save(model, os.path.join(folder, graph))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
