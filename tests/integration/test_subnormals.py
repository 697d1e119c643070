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
  microbatches: {microbatches}
  collective: {collective}
  optimizer: {{name: lion, lr: 0.01}}
workers: {{min: {workers}, max: {workers}}}
"""


def write_data(folder, samples, least, most):
    """Row i is drawn from N(0, 1) times 10^U(least, most); its gradients are smaller still."""
    draw = random.Random(5)
    rows = []
    for _ in range(samples):
        scale = 10 ** draw.uniform(least, most)
        rows += [draw.gauss(0, 1) * scale for _ in range(FEATURES)]
    folder.file("x.npy", npy("<f4", (samples, FEATURES), struct.pack(f"<{len(rows)}f", *rows)))
    folder.file("y.npy", npy("|u1", (samples,), bytes(draw.randrange(CLASSES) for _ in range(samples))))


def train(folder, cluster, **keys):
    """The hash of the weights."""
    name = "-".join(str(value) for value in (len(cluster.servers), *keys.values()))
    spec = folder.file(f"{name}.yaml", SPEC.format(root=folder.path, steps=STEPS, batch=BATCH, **keys))
    metrics = folder.file(f"{name}.jsonl")
    weir("submit", spec, "--follow", "--coordinator", cluster.address, "--metrics", metrics)
    return done_event(metrics)["weights_sha256"]


def check_every_spread(microbatches, least, most):
    with Folder() as folder:
        write_data(folder, STEPS * BATCH, least, most)
        folder.model("mlp", "--input", str(FEATURES), "--classes", str(CLASSES), "--hidden", str(HIDDEN))
        found = {}
        for servers in SERVERS:
            store = "file://" + folder.file(f"store-{servers}")
            with Cluster(folder, servers, max(WORKERS), store=store) as cluster:
                for workers, collective in itertools.product(WORKERS, COLLECTIVES):
                    found[workers, servers, collective] = train(folder, cluster, workers=workers, collective=collective,
                                                                microbatches=microbatches)
        assert len(set(found.values())) == 1, "\n".join(f"{key}: {value}" for key, value in found.items())


def test_the_least_sums_are_the_same_however_the_work_is_spread():
    check_every_spread(8, -37.5, -35.5)


def test_sums_of_many_small_parts_are_the_same_however_the_work_is_spread():
    """A thread that adds several of them without the setting makes a normal number of subnormals."""
    check_every_spread(32, -35.5, -34.5)


if __name__ == "__main__":
    main(globals())
