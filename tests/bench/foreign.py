#!/usr/bin/env python3
"""examples/fashion-mnist.yaml by a worker of ours and one on PyTorch in one run, then by ours alone: what each reaches.

    make build/torch/.done && python3 tests/bench/foreign.py [EPOCHS]"""
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import ROOT, Cluster, Folder, Process, wait_for, weir  # noqa: E402

TORCH = os.path.join(ROOT, "build", "torch", "bin", "python")
ROW = "{:<22} {:>9} {:>9} {:>8} {:>8}"


def main():
    epochs = sys.argv[1] if len(sys.argv) > 1 else "5"
    print(ROW.format("workers", "accuracy", "loss", "steps", "seconds"))
    with Folder() as folder, open(os.path.join(ROOT, "examples", "fashion-mnist.yaml")) as file:
        spec = folder.file("fashion-mnist.yaml", file.read())
        weir("model", "lenet", "--batch-norm", "-o", folder.file("fashion-mnist.onnx"))
        with Cluster(folder, workers=1) as cluster:
            at = ("--coordinator", cluster.address)

            def train(name, least):
                began = time.monotonic()
                run = weir("submit", spec, f"train.epochs={epochs}", "train.deterministic=false", f"workers.min={least}", *at).stdout.strip()
                wait_for(lambda: json.loads(weir("status", run, "--json", *at).stdout)["state"] in ("done", "failed"), "the run's end")
                status = json.loads(weir("status", run, "--json", *at).stdout)
                print(ROW.format(name, f"{100 * status['accuracy']:.2f} %", f"{status['eval_loss']:.4f}", status["steps"], f"{time.monotonic() - began:.0f}"), flush=True)

            script = os.path.join(ROOT, "examples", "python", "lenet_worker.py")
            with Process(TORCH, script, *at) as other:
                wait_for(lambda: len(json.loads(weir("workers", *at, "--json").stdout)) == 2, "both workers")
                train("ours and PyTorch's", 2)
                other.send(signal.SIGTERM)
                assert other.wait() == 0, other.output()
                print(f"of them PyTorch's {other.output().strip()}", flush=True)
            train("ours", 1)


if __name__ == "__main__":
    main()
