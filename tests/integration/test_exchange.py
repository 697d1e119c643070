"""Updates that need sums over all blocks: servers exchange them, and no bit depends on how many there are."""
import os
import random
import signal
import struct

from gate import Gate
from harness import Cluster, Folder, Process, children_of, done_event, kept, main, newest_step, program, wait_for, weir

# Two hidden layers, each larger than a block; the rest shares one.
MODEL = ("mlp", "--input", "1,28,28", "--hidden", "100,700", "--seed", "5")
CLUSTERS = ((1, 1), (2, 3), (3, 2))  # workers, servers
UPDATES = {
    "clip-norm": "  clip_norm: 0.5\n  optimizer: {name: sgd, lr: 0.1, momentum: 0.9}\n",
    "clip-value": "  clip_value: 0.001\n  optimizer: {name: adam, lr: 0.001}\n",
    "lamb": "  optimizer: {name: lamb, lr: 0.01, weight_decay: 0.01}\n",
    "lars": "  clip_norm: 0.5\n  optimizer: {name: lars, lr: 5, weight_decay: 0.0001}\n",
    "adafactor": "  clip_norm: 0.5\n  optimizer: {name: adafactor, lr: 0.01}\n",
    "groups": "  average: {decay: 0.5}\n  optimizer: {name: lamb, lr: 0.01, groups: [{params: [fc2.*], lr: 0.02}, "
              "{params: ['*.bias'], weight_decay: 0.1}, {params: [head.weight], frozen: true}]}\n",
}


def write_spec(folder, name, steps):
    folder.small_data(480, 24)
    return folder.file(f"{name}.yaml", f"""name: {name}
model: {{onnx: mlp.onnx, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}]
train:
  steps: {steps}
  batch: 32
  microbatches: 4
{UPDATES[name]}checkpoint: {{every_steps: 4}}
""")


def train_all(folder, workers, servers):
    """weights_sha256 by update."""
    found = {}
    store = "file://" + folder.file(f"store-{workers}-{servers}")
    with Cluster(folder, servers=servers, workers=workers, store=store) as cluster:
        for name in UPDATES:
            metrics = folder.file(f"{name}-{workers}-{servers}.jsonl")
            weir("submit", write_spec(folder, name, 8), "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            found[name] = done_event(metrics)["weights_sha256"]
    return found


def test_any_number_of_servers_gives_the_same_weights():
    with Folder() as folder:
        folder.model(*MODEL)
        alone, *others = (train_all(folder, *cluster) for cluster in CLUSTERS)
        assert len(set(alone.values())) == len(UPDATES), "each has weights of its own"
        for found in others:
            assert found == alone


def test_sums_of_rows_as_long_as_blocks_travel_in_many_messages():
    """Adafactor's column sums of ten rows of 60,000 weights: three servers send more than a message holds."""
    with Folder() as folder:
        draw = random.Random(4)
        head = "{'descr': '%s', 'fortran_order': False, 'shape': (96%s), }"
        for name, kind, shape, content in (("x", "<f4", ", 8", struct.pack("<768f", *(draw.gauss(0, 1) for _ in range(768)))),
                                           ("labels", "|u1", ",", bytes(draw.randrange(10) for _ in range(96)))):
            text = (head % (kind, shape)).ljust(117) + "\n"
            with open(folder.file(name + ".npy"), "wb") as file:
                file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content)
        weir("model", "mlp", "--input", 8, "--hidden", 60000, "-o", folder.file("wide.onnx"))
        spec = folder.file("wide.yaml", f"""name: wide
model: {{onnx: wide.onnx, loss: cross_entropy}}
data: {{root: {folder.path}, train: {{format: npy, columns: {{x: x.npy, labels: labels.npy}}}}}}
train:
  steps: 4
  batch: 24
  microbatches: 2
  clip_norm: 0.5
  optimizer: {{name: adafactor, lr: 0.01}}
""")
        hashes = {}
        for servers in (1, 3):
            metrics = folder.file(f"wide-{servers}.jsonl")
            weir("train", spec, "--servers", servers, "--threads", 1, "--out", folder.file(f"wide-{servers}"),
                 "--metrics", metrics)
            hashes[servers] = done_event(metrics)["weights_sha256"]
        assert hashes[1] == hashes[3]


def train(spec, out):
    weir("train", spec, "--out", out)
    return done_event(os.path.join(out, "metrics.jsonl"))["weights_sha256"]


def test_a_server_killed_while_sums_are_exchanged_changes_nothing():
    with Folder() as folder:
        folder.model(*MODEL)
        for name, victim in (("clip-norm", 0), ("adafactor", 1), ("lamb", 0)):
            spec = write_spec(folder, name, 60)
            calm, stormy = (folder.file(f"{kind}-{name}-{victim}") for kind in ("calm", "stormy"))
            weights = kept(f"exchange-{name}", lambda: train(spec, calm))
            gate = Gate(folder)
            gate.stop_at(40)
            with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out", stormy,
                         "--metrics", stormy + ".jsonl", env=gate.environment) as training:
                wait_for(lambda: newest_step(stormy + ".jsonl") >= 10, "step 10")
                os.kill(children_of(training.child.pid, "weir-server")[1 + victim], signal.SIGKILL)
                gate.open()
                assert training.wait() == 0, training.output()[-3000:]
            assert done_event(stormy + ".jsonl")["weights_sha256"] == weights


if __name__ == "__main__":
    main(globals())
