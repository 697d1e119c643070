#!/usr/bin/env python3
"""Gradients on the border of the smallest f32: the same bits wherever they are added. One floating-point setting counts
subnormals as zero on every thread of every program; a thread without it would end in other weights here."""
import itertools
import random
import struct

from formats import npy
from harness import Cluster, Folder, done_event, main, weir

FEATURES, CLASSES, HIDDEN, STEPS, BATCH = 16, 4, 32, 20, 64
WORKERS, SERVERS, COLLECTIVES = (1, 2, 3, 4), (1, 2, 3), ("none", "shm")
# lion takes signs: a sum that is a subnormal instead of zero moves a weight by all of lr.
SPEC = """name: subnormals
model: {{onnx: mlp.onnx, loss: cross_entropy}}
data:
  root: {root}
  train: {{format: npy, columns: {{x: x.npy, labels: y.npy}}}}
train:
  steps: {steps}
  batch: {batch}
  microbatches: 8
  collective: {collective}
  optimizer: {{name: lion, lr: 0.01}}
workers: {{min: {workers}, max: {workers}}}
"""


def write_data(folder, samples):
    """Row i is drawn from N(0, 1) times 10^U(-37.5, -35.5): its gradients are as small, and smaller."""
    draw = random.Random(5)
    rows = []
    for _ in range(samples):
        scale = 10 ** draw.uniform(-37.5, -35.5)
        rows += [draw.gauss(0, 1) * scale for _ in range(FEATURES)]
    folder.file("x.npy", npy("<f4", (samples, FEATURES), struct.pack(f"<{len(rows)}f", *rows)))
    folder.file("y.npy", npy("|u1", (samples,), bytes(draw.randrange(CLASSES) for _ in range(samples))))


def train(folder, cluster, workers, collective):
    """With so many of the cluster's workers; the hash of the weights."""
    name = f"{workers}-{len(cluster.servers)}-{collective}"
    spec = folder.file(f"{name}.yaml", SPEC.format(root=folder.path, steps=STEPS, batch=BATCH, workers=workers,
                                                   collective=collective))
    metrics = folder.file(f"{name}.jsonl")
    weir("submit", spec, "--follow", "--coordinator", cluster.address, "--metrics", metrics)
    return done_event(metrics)["weights_sha256"]


def test_subnormal_sums_are_the_same_however_the_work_is_spread():
    with Folder() as folder:
        write_data(folder, STEPS * BATCH)
        folder.model("mlp", "--input", str(FEATURES), "--classes", str(CLASSES), "--hidden", str(HIDDEN))
        found = {}
        for servers in SERVERS:
            store = "file://" + folder.file(f"store-{servers}")
            with Cluster(folder, servers, max(WORKERS), store=store) as cluster:
                for workers, collective in itertools.product(WORKERS, COLLECTIVES):
                    found[workers, servers, collective] = train(folder, cluster, workers, collective)
        assert len(set(found.values())) == 1, "\n".join(f"{key}: {value}" for key, value in found.items())


if __name__ == "__main__":
    main(globals())
