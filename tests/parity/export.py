#!/usr/bin/env python3
"""Exports models as their authors would, with either exporter of PyTorch:

    python tests/parity/export.py resnet18 -o DIR --exporter new --batch dynamic
    python tests/parity/export.py all -o DIR

writes DIR/MODEL.onnx (the newer exporter keeps weights beside it, in MODEL.onnx.data). Needs
tests/parity/requirements.txt."""
import argparse
import contextlib
import io
import logging
import os
import warnings

import torch

import models

BATCH = 8
EXPORTERS = ("old", "new", "optimized")
BATCHES = ("dynamic", "fixed")


def exporters_of(case):
    """Left to its defaults, the newer exporter folds batch norm into convolutions."""
    return [name for name in EXPORTERS if name != "optimized" or not case.has_batch_norm]


def export(case, path, exporter="new", batch="dynamic", samples=BATCH, module=None):
    """Writes the case's module, in training form, to path."""
    columns = list(case.data(samples).items())[:-1]
    names, inputs = [name for name, _ in columns], tuple(torch.tensor(column) for _, column in columns)
    module = module or case.build()
    options = {"input_names": names, "output_names": ["output"], "training": torch.onnx.TrainingMode.TRAINING}
    if exporter == "old":
        options.update(dynamo=False, opset_version=17, do_constant_folding=False)
        if batch == "dynamic":
            options.update(dynamic_axes={name: {0: "batch"} for name in [*names, "output"]})
    else:
        options.update(dynamo=True, verbose=False, optimize=exporter == "optimized")
        if batch == "dynamic":
            options.update(dynamic_shapes=tuple({0: torch.export.Dim("batch")} for _ in names))
    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(module.train(), inputs, path, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["all", *models.FULL])
    parser.add_argument("-o", "--out", required=True, help="a folder; made if it is not there")
    parser.add_argument("--exporter", choices=EXPORTERS, default="new",
                        help="old: TorchScript's; optimized: the newer one with its defaults, which do not keep what a "
                             "model is")
    parser.add_argument("--batch", choices=BATCHES, default="dynamic", help=f"fixed: {BATCH} samples")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    for name in models.FULL if options.model == "all" else [options.model]:
        torch.manual_seed(0)
        path = os.path.join(options.out, name + ".onnx")
        export(models.FULL[name], path, options.exporter, options.batch)
        print("wrote", path)


if __name__ == "__main__":
    main()
