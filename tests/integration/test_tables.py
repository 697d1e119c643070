"""Every row of every table a run is made of, read from the .def files: optimizers, schedules, losses, data formats,
transforms. A few short runs hold them all between them; each gives the same weights, losses and evaluations on one worker
and server and on three workers and two servers. A new row fails here until it has its line below.

Runs are as wide as a block and a half, so that two servers have something to do, and have as many samples as fill no
whole evaluation chunk."""
import concurrent.futures
import io
import os
import random
import re
import struct
import zipfile
import zlib

from harness import ROOT, STEP_KEYS, Cluster, Folder, done_event, main, read_metrics, weir

TRAIN_SAMPLES, EVAL_SAMPLES, CLASSES, SIDE, CHANNELS = 30, 19, 4, 32, 3
STEPS = 6
CLUSTERS = ((1, 1), (3, 2))  # workers, servers

OPTIMIZERS = {
    "sgd": "lr: 0.02, momentum: 0.9, nesterov: true, weight_decay: 0.0005",
    "adam": "lr: 0.01, weight_decay: 0.001",
    "adamw": "lr: 0.01, betas: [0.8, 0.9]",
    "amsgrad": "lr: 0.01",
    "nadam": "lr: 0.01, momentum_decay: 0.1",
    "radam": "lr: 0.01, betas: [0.9, 0.7]",
    "adamax": "lr: 0.01",
    "adagrad": "lr: 0.02, initial_accumulator_value: 0.1",
    "adadelta": "lr: 0.5",
    "rmsprop": "lr: 0.002, centered: true, momentum: 0.5",
    "lion": "lr: 0.002, weight_decay: 0.1",
}
SCHEDULES = {
    "constant": "warmup_steps: 3",
    "step": "step_size: 2, gamma: 0.5",
    "multistep": "milestones: [2, 4]",
    "exponential": "gamma: 0.9",
    "linear": "start_factor: 1, end_factor: 0.1, warmup_steps: 1",
    "polynomial": "power: 2",
    "cosine": "warmup_steps: 2",
    "cosine_warm_restarts": "T_0: 2, T_mult: 2, eta_min: 0.001",
    "one_cycle": "pct_start: 0.5, div_factor: 4",
    "inverse_sqrt": "warmup_steps: 2",
    "noam": "warmup_steps: 2",
}
TRANSFORMS = {  # in the order in which a list holds them
    "resize": "{size: 40}",
    "random_resized_crop": "{size: 36}",
    "random_crop": "{size: 34, padding: 2}",
    "center_crop": "{size: 32}",
    "horizontal_flip": "{}",
    "scale": "0.00392156862745098",
    "normalize": "{mean: [0.5, 0.4, 0.3], std: [0.25, 0.25, 0.5]}",
    "cutout": "{size: 8}",
    "mixup": "{alpha: 0.2}",
    "cutmix": "{alpha: 1}",
}
MIXING = ("mixup", "cutmix")  # for labels of one class
RESIZING = ("resize", "random_resized_crop", "random_crop")  # to what has to be cut
LOSSES = {  # labels, model.loss_options
    "bce_with_logits": ("shares", "pos_weight: [2]"),
    "cross_entropy": ("labels", "label_smoothing: 0.1"),
    "huber": ("targets", "delta: 0.5"),
    "kl_div": ("shares", "reduction: batchmean"),
    "l1": ("targets", ""),
    "mse": ("targets", ""),
    "nll": ("labels", "weight: [1, 2, 0.5, 1]"),
    "smooth_l1": ("targets", "beta: 0.5"),
}


def rows(path, word):
    with open(f"{ROOT}/{path}") as table:
        return re.findall(rf"^{word}\((\w+)[,)]", table.read(), re.MULTILINE)


TABLES = (
    ("server/parameters/optimizer.def", "OPTIMIZER", OPTIMIZERS),
    ("server/parameters/schedule.def", "SCHEDULE", SCHEDULES),
    ("common/graph/loss.def", "LOSS", LOSSES),
    ("worker/data/transform.def", "TRANSFORM", TRANSFORMS),
)


def idx(kind, shape, payload):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


def npy(descr, shape, payload):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + payload


class Samples:
    """Columns of one part of a dataset, drawn anew alike for each format that holds them."""

    def __init__(self, seed, samples):
        draw = random.Random(seed)
        self.n = samples
        self.labels = bytes(draw.randrange(CLASSES) for _ in range(samples))
        self.images = draw.randbytes(samples * CHANNELS * SIDE * SIDE)
        self.targets = [draw.uniform(-1, 1) for _ in range(samples * CLASSES)]
        self.shares = [draw.uniform(0, 1) for _ in range(samples * CLASSES)]

    def floats(self, values, order):
        return struct.pack(f"{order}{len(values)}f", *values)


PARTS = {"train": Samples(1, TRAIN_SAMPLES), "eval": Samples(2, EVAL_SAMPLES)}


def write_idx(folder, part, data):
    return (f"images: {folder.name(part + '-images', idx(8, (data.n, CHANNELS, SIDE, SIDE), data.images))}, "
            f"labels: {folder.name(part + '-labels', idx(8, (data.n,), data.labels))}")


def write_npy(folder, part, data):
    """The columns that losses want, besides images."""
    files = {"images": npy("|u1", (data.n, CHANNELS, SIDE, SIDE), data.images),
             "labels": npy("|u1", (data.n,), data.labels),
             "targets": npy("<f4", (data.n, CLASSES), data.floats(data.targets, "<")),
             "shares": npy("<f4", (data.n, CLASSES), data.floats(data.shares, "<"))}
    columns = (f"{name}: {folder.name(f'{part}-{name}.npy', content)}" for name, content in files.items())
    return f"columns: {{{', '.join(columns)}}}"


def write_npz(folder, part, data):
    """Images compressed, labels as they are."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x.npy", npy("|u1", (data.n, CHANNELS, SIDE, SIDE), data.images), zipfile.ZIP_DEFLATED)
        archive.writestr("y.npy", npy("|u1", (data.n,), data.labels))
    return f"file: {folder.name(part + '.npz', content.getvalue())}, columns: {{images: x, labels: y}}"


def write_csv(folder, part, data):
    pixels = CHANNELS * SIDE * SIDE
    lines = [",".join(["y"] + [f"p{i}" for i in range(pixels)])]
    for i, label in enumerate(data.labels):
        lines.append(",".join(str(value) for value in (label, *data.images[i * pixels:(i + 1) * pixels])))
    name = folder.name(part + ".csv", "\n".join(lines).encode())
    return f'file: {name}, columns: {{images: "p0:p{pixels - 1}", labels: y}}'


def write_cifar(folder, part, data):
    pixels = CHANNELS * SIDE * SIDE
    records = [bytes([label]) + data.images[i * pixels:(i + 1) * pixels] for i, label in enumerate(data.labels)]
    halves = (b"".join(records[:7]), b"".join(records[7:]))
    return f"files: [{', '.join(folder.name(f'{part}-{i}.bin', half) for i, half in enumerate(halves))}]"


def write_tokens(folder, part, data):
    content = struct.pack(f"<{data.n + 1}H", *data.labels, 0)
    return f"file: {folder.name(part + '-tokens.bin', content)}, dtype: u16, context: 1"


def write_text(folder, part, data):
    content = "".join("abcd"[label] for label in data.labels) + "a"
    return f"file: {folder.name(part + '.txt', content.encode())}, context: 1"


def png(pixels):
    """u8[channels, side, side] as a file."""
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    plane = SIDE * SIDE
    lines = b"".join(b"\0" + bytes(pixels[c * plane + y * SIDE + x] for x in range(SIDE) for c in range(CHANNELS))
                     for y in range(SIDE))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def write_images(folder, part, data):
    for label in range(CLASSES):
        os.makedirs(f"{folder.path}/{part}/class-{label}", exist_ok=True)
    pixels = CHANNELS * SIDE * SIDE
    for i, label in enumerate(data.labels):
        folder.name(f"{part}/class-{label}/{i}.png", png(data.images[i * pixels:(i + 1) * pixels]))
    return f"folder: {part}"


# Whether samples are images, and how a part is written; the answer are the keys of its source.
FORMATS = {
    "idx": write_idx,
    "npy": write_npy,
    "npz": write_npz,
    "csv": write_csv,
    "cifar": write_cifar,
    "images": write_images,
    "tokens": write_tokens,
    "text": write_text,
}
SEQUENCES = ("tokens", "text")  # their samples are one element
FLAT = ("csv", *SEQUENCES)      # likewise, or one row: no transforms of images


class DataFolder(Folder):
    def name(self, name, content):
        self.file(name, content)
        return name


class Run:
    """One submission: a format and a loss, and the rows of other tables that it takes."""

    def __init__(self, data_format, loss="cross_entropy"):
        self.format, self.loss = data_format, loss
        self.optimizer = self.schedule = None
        self.transforms = []

    def name(self):
        return re.sub("[^a-z0-9-]", "-", f"{self.format}-{self.loss}-{self.optimizer}")[:40]

    def write(self, folder):
        labels, options = LOSSES[self.loss]
        model, column = ("next", "tokens") if self.format in SEQUENCES else ("mlp", "images")
        transforms = ", ".join(f"{{{name}: {TRANSFORMS[name]}}}" for name in TRANSFORMS if name in self.transforms)
        sources = "".join(f"  {part}: {{format: {self.format}, {FORMATS[self.format](folder, part, data)}}}\n"
                          for part, data in PARTS.items())
        return folder.file(self.name() + ".yaml", f"""name: {self.name()}
model:
  onnx: {model}.onnx
  loss: {self.loss}
  loss_options: {{{options}}}
  inputs: {{image: {column}}}
  labels: {labels}
data:
  root: {folder.path}
{sources}  transforms: [{transforms}]
train:
  steps: {STEPS}
  batch: 12
  microbatches: 4
  seed: 3
  optimizer: {{name: {self.optimizer}, {OPTIMIZERS[self.optimizer]}}}
  schedule: {{name: {self.schedule}, {SCHEDULES[self.schedule]}}}
eval: {{every_steps: 3}}
""")


def deal(table, count):
    """Each row of the table in some of that many places, in turns."""
    return [list(table)[place % len(table)] for place in range(count)]


def keep_rows():
    """Lines that wait for their rows."""
    for path, word, table in TABLES:
        for name in set(table) - set(rows(path, word)):
            del table[name]


def plan_runs():
    runs = [Run(data_format) for data_format in FORMATS]
    runs += [Run("npy", loss) for loss in LOSSES if loss != "cross_entropy"]
    while len(runs) < max(len(OPTIMIZERS), len(SCHEDULES)):
        runs.append(Run("npy"))
    for run, optimizer, schedule in zip(runs, deal(OPTIMIZERS, len(runs)), deal(SCHEDULES, len(runs))):
        run.optimizer, run.schedule = optimizer, schedule
    for transform in TRANSFORMS:
        fitting = [run for run in runs if run.format not in FLAT and
                   (transform not in MIXING or run.loss == "cross_entropy")]
        run = min(fitting, key=lambda run: len(run.transforms))
        run.transforms += [transform, "center_crop"] if transform in RESIZING else [transform]
    return runs


def outcome(path):
    """What must not depend on who computed it; of an evaluation all there is."""
    events = read_metrics(path)
    return {"steps": [[event[key] for key in STEP_KEYS] for event in events if event["event"] == "step"],
            "evals": [event for event in events if event["event"] == "eval"],
            "weights": done_event(path)["weights_sha256"]}


def train_all(folder, specs, workers, servers):
    """By name of the run: what its metrics say."""
    found = {}
    with Cluster(folder, servers=servers, workers=workers, store=f"file://{folder.path}/store-{workers}") as cluster:
        for name, spec in specs.items():
            metrics = folder.file(f"{name}-{workers}-{servers}.jsonl")
            weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            found[name] = outcome(metrics)
    return found


def test_every_row_of_every_table_is_listed_here():
    for path, word, table in (*TABLES, ("worker/data/format.def", "FORMAT", FORMATS)):
        assert set(rows(path, word)) <= set(table), f"{path} has {rows(path, word)}, the test {list(table)}"
    runs = plan_runs()
    assert {run.optimizer for run in runs} == set(OPTIMIZERS)
    assert {run.schedule for run in runs} == set(SCHEDULES)
    assert {name for run in runs for name in run.transforms} == set(TRANSFORMS)


def test_each_row_gives_the_same_bits_whoever_computes():
    with DataFolder() as folder:
        folder.model("mlp", "--input", f"{CHANNELS},{SIDE},{SIDE}", "--hidden", "32", "--classes", CLASSES,
                     "--batch-norm", "--dropout", "0.25")
        weir("model", "mlp", "--input", "1", "--hidden", "256", "--classes", CLASSES, "-o", folder.file("next.onnx"))
        specs = {run.name(): run.write(folder) for run in plan_runs()}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            alone, together = pool.map(lambda shape: train_all(folder, specs, *shape), CLUSTERS)
        for name, wanted in alone.items():
            assert len(wanted["steps"]) == STEPS and len(wanted["evals"]) == 2, (name, wanted)
            assert together[name] == wanted, f"{name}: {together[name]}\nis not {wanted}"
        assert len({wanted["weights"] for wanted in alone.values()}) == len(alone), "some runs had the same result"


keep_rows()

if __name__ == "__main__":
    main(globals())
