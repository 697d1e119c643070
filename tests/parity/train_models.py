#!/usr/bin/env python3
"""Every model of models.py, exported by both exporters (the newer one also with its defaults, where they leave batch
norm alone) with a dynamic and a fixed batch, is inspected and trained:

    python tests/parity/train_models.py build/weir [MODEL...] [--exporter old] [--batch fixed]

One line for each: what it is made of, and the loss of the first and (on average) the last steps. Exits 1 if one is
refused or does not learn. Needs tests/parity/requirements.txt and, for all models, about half an hour on two cores."""
import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
import torch

import export
import models

torch.set_flush_denormal(True)  # as Weir computes

STEPS, BATCH, MICROBATCHES, LAST = 50, 8, 2, 5
REFUSAL_LENGTH_MAX = 500
ROW = "{:<19} {:<9} {:<8} {:>11} {:>6} {:>9} {:>9} {:>8}  {}"


class Refused(Exception):
    """A program of ours ended with an error; the text is its."""


def weir(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        text = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise Refused(text if len(text) <= REFUSAL_LENGTH_MAX else text[:REFUSAL_LENGTH_MAX] + " ...")
    return done.stdout


def write_data(folder, case):
    columns = case.data(STEPS * BATCH)
    for name, data in columns.items():
        numpy.save(os.path.join(folder, name), data)
    return list(columns)


def write_spec(folder, case, columns):
    path = os.path.join(folder, "spec.yaml")
    inputs = ", ".join(f"{column}: {column}" for column in columns[:-1])
    files = ", ".join(f"{column}: {column}.npy" for column in columns)
    with open(path, "w") as file:
        file.write(f"""name: parity
model: {{onnx: model.onnx, loss: {case.loss}, inputs: {{{inputs}}}}}
data: {{root: {folder}, train: {{format: npy, columns: {{{files}}}}}}}
train:
  steps: {STEPS}
  batch: {BATCH}
  microbatches: {MICROBATCHES}
  optimizer: {{lr: {case.lr}, momentum: 0.9}}
  schedule: {{name: constant, warmup_steps: 5}}
""")
    return path


def operators(path):
    """What the graph is made of, most frequent first."""
    nodes = onnx.load(path, load_external_data=False).graph.node
    counts = collections.Counter(node.op_type for node in nodes if node.op_type != "Constant")
    return " ".join(f"{name}*{count}" if count > 1 else name for name, count in counts.most_common())


def train(program, folder, spec):
    """Loss per step."""
    out = os.path.join(folder, "out")
    weir(program, "train", spec, "--workers", 1, "--threads", MICROBATCHES, "--out", out)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        events = [json.loads(line) for line in file]
    shutil.rmtree(out)
    return [event["loss"] for event in events if event["event"] == "step"]


def try_one(program, name, exporter, batch):
    """Prints a line; whether it learned."""
    case, begin = models.FULL[name], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.manual_seed(0)
        module = case.build()
        export.export(case, path, exporter, batch, BATCH // MICROBATCHES, module)
        size = sum(parameter.numel() for parameter in module.parameters())
        nodes, error, losses = operators(path), "", [float("nan")]
        exported = time.monotonic()
        try:
            weir(program, "inspect", path, "--batch", BATCH // MICROBATCHES)
            losses = train(program, folder, write_spec(folder, case, write_data(folder, case)))
        except Refused as refusal:
            error = str(refusal).replace(folder + "/", "")
    last = sum(losses[-LAST:]) / len(losses[-LAST:])
    error = error or ("" if last < losses[0] else "the loss did not fall")
    print(ROW.format(name, exporter, batch, f"{size:,}", f"{exported - begin:.0f} s", f"{losses[0]:.4f}", f"{last:.4f}",
                     f"{time.monotonic() - exported:.0f} s", error or "ok"))
    print(f"{'':20}{nodes}", flush=True)
    return not error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="the program")
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: all")
    parser.add_argument("--exporter", choices=export.EXPORTERS)
    parser.add_argument("--batch", choices=export.BATCHES)
    options = parser.parse_args()
    unknown = set(options.models) - set(models.FULL)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(models.FULL)}")
    print(ROW.format("MODEL", "FROM", "BATCH", "PARAMETERS", "EXPORT", "LOSS AT 0", f"AT {STEPS}", "TRAINING", ""))
    tried = [try_one(options.weir, name, exporter, batch)
             for name in options.models or models.FULL
             for exporter in export.exporters_of(models.FULL[name]) if options.exporter in (None, exporter)
             for batch in export.BATCHES if options.batch in (None, batch)]
    print(f"{sum(tried)} of {len(tried)} exports trained")
    sys.exit(not all(tried))


if __name__ == "__main__":
    main()
