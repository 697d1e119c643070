"""Every row of every table that a run is made of, read from the .def files: optimizers, schedules, losses, formats,
transforms, metrics. A few short runs hold them all between them; each gives the same weights, losses and evaluations
on one worker and server and on three workers and two servers. A new row fails here until it has its line below.

Models are wider than a block, so that two servers have something to do; samples fill no whole evaluation chunk."""
import concurrent.futures
import re

from formats import CHANNELS, CLASSES, CONTEXT, FORMATS, PARTS, SIDE
from harness import STEP_KEYS, Cluster, Folder, done_event, main, read_metrics, table_rows, weir

STEPS = 6
IMAGE = f"{CHANNELS},{SIDE},{SIDE}"
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
    "lamb": "lr: 0.01, weight_decay: 0.01",
    "lars": "lr: 2, weight_decay: 0.001",
    "adafactor": "lr: 0.01",
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
BESIDES = ("", "clip_norm: 0.5", "clip_value: 0.01", "average: {decay: 0.9}")  # of the section train
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
    "nll": ("labels", "weight: [1, 2, 0.5, 1, 1, 3, 0.25, 1]"),
    "smooth_l1": ("targets", "beta: 0.5"),
}


METRICS = {  # which runs have them
    "accuracy": lambda run: run.has_classes() or run.loss == "bce_with_logits",
    "auc": lambda run: run.model == "pair",
    "mae": lambda run: LOSSES[run.loss][0] == "targets",
    "perplexity": lambda run: run.loss == "cross_entropy",
    "top5": lambda run: run.has_classes() and run.model != "pair",
}
MODELS = {  # the input, and `weir model`
    "mlp": ("image", ("mlp", "--input", IMAGE, "--hidden", 32, "--classes", CLASSES, "--batch-norm",
                      "--dropout", 0.25)),
    "pair": ("image", ("mlp", "--input", IMAGE, "--hidden", 32, "--classes", 2)),
    "gpt": ("tokens", ("gpt", "--vocabulary", CLASSES, "--context", CONTEXT, "--width", 80, "--depth", 1, "--heads", 2,
                       "--dropout", 0.1)),
}
SAMPLERS = {  # which runs may have them
    "shuffle": lambda run: True,
    "sequential": lambda run: True,
    "weighted": lambda run: run.has_classes() and run.model != "gpt",
}
SEQUENCES = ("tokens", "text")  # formats
FLAT = ("csv", *SEQUENCES)      # without images


TABLES = (
    ("common/optim/optimizer.def", "OPTIMIZER", OPTIMIZERS),
    ("common/optim/schedule.def", "SCHEDULE", SCHEDULES),
    ("model/losses/loss.def", "LOSS", LOSSES),
    ("worker/data/format.def", "FORMAT", FORMATS),
    ("worker/data/transform.def", "TRANSFORM", TRANSFORMS),
    ("model/metrics/metric.def", "METRIC", METRICS),
    ("worker/data/sampler.def", "SAMPLER", SAMPLERS),
)


class Run:
    """One submission: a format, a loss and a model, and the rows of other tables that it takes."""

    def __init__(self, data_format, loss="cross_entropy", model="mlp"):
        self.format, self.loss = data_format, loss
        self.model = "gpt" if data_format in SEQUENCES else model
        self.optimizer = self.schedule = None
        self.besides = ""
        self.sampler, self.is_split = "shuffle", False
        self.transforms, self.metrics = [], []

    def has_classes(self):
        return LOSSES[self.loss][0] == "labels"

    def name(self):
        return re.sub("[^a-z0-9-]", "-", f"{self.format}-{self.model}-{self.loss}-{self.optimizer}")[:40]

    def write(self, folder):
        labels, options = LOSSES[self.loss]
        column = "tokens" if self.model == "gpt" else "images"
        transforms = ", ".join(f"{{{name}: {TRANSFORMS[name]}}}" for name in TRANSFORMS if name in self.transforms)
        sources = "".join(f"  {part}: {{format: {self.format}, {FORMATS[self.format](folder, part, data)}}}\n"
                          for part, data in PARTS.items() if part == "train" or not self.is_split)
        sources += "  split: [0.6, 0.4]\n" if self.is_split else ""
        return folder.file(self.name() + ".yaml", f"""name: {self.name()}
model:
  onnx: {self.model}.onnx
  loss: {self.loss}
  loss_options: {{{options}}}
  inputs: {{{MODELS[self.model][0]}: {column}}}
  labels: {"sides" if self.model == "pair" else labels}
data:
  root: {folder.path}
{sources}  sampler: {self.sampler}
  transforms: [{transforms}]
train:
  steps: {STEPS}
  batch: 12
  microbatches: 4
  seed: 3
  optimizer: {{name: {self.optimizer}, {OPTIMIZERS[self.optimizer]}}}
  schedule: {{name: {self.schedule}, {SCHEDULES[self.schedule]}}}
  {self.besides}
eval: {{every_steps: 3, metrics: [{", ".join(self.metrics)}]}}
""")


def pick(table, place):
    """Rows take turns."""
    return list(table)[place % len(table)]


def plan_runs():
    runs = [Run(data_format) for data_format in FORMATS]
    runs += [Run("npy", loss) for loss in LOSSES if loss != "cross_entropy"]
    runs.append(Run("npy", model="pair"))
    while len(runs) < max(len(OPTIMIZERS), len(SCHEDULES)):
        runs.append(Run("npy"))
    for place, run in enumerate(runs):
        run.optimizer, run.schedule, run.besides = (pick(table, place) for table in (OPTIMIZERS, SCHEDULES, BESIDES))
        run.metrics = [name for name, is_of in METRICS.items() if is_of(run)]
    for place, (sampler, fits) in enumerate(SAMPLERS.items()):
        fitting = [run for run in runs if fits(run)]
        for run in fitting[place::len(SAMPLERS)]:
            run.sampler, run.is_split = sampler, run.format != "npy"
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
    with Cluster(folder, servers=servers, workers=workers, store=f"file://{folder.path}/store-{workers}", is_patient=True) as cluster:
        for name, spec in specs.items():
            metrics = folder.file(f"{name}-{workers}-{servers}.jsonl")
            weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
            found[name] = outcome(metrics)
    return found


def test_every_row_of_every_table_is_listed_here():
    for path, word, table in TABLES:
        assert set(table_rows(path, word)) == set(table), f"{path} has {table_rows(path, word)}, the test {list(table)}"
    runs = plan_runs()
    assert {run.optimizer for run in runs} == set(OPTIMIZERS)
    assert {run.schedule for run in runs} == set(SCHEDULES)
    assert {name for run in runs for name in run.transforms} == set(TRANSFORMS)
    assert {name for run in runs for name in run.metrics} == set(METRICS)
    assert {run.sampler for run in runs} == set(SAMPLERS)
    assert {run.sampler for run in runs if run.is_split} == set(SAMPLERS)


def test_each_row_gives_the_same_bits_whoever_computes():
    with Folder() as folder:
        for name, (_, options) in MODELS.items():
            weir("model", *options, "-o", folder.file(name + ".onnx"))
        runs = {run.name(): run for run in plan_runs()}
        specs = {name: run.write(folder) for name, run in runs.items()}
        with concurrent.futures.ThreadPoolExecutor() as pool:
            alone, together = pool.map(lambda shape: train_all(folder, specs, *shape), CLUSTERS)
        for name, wanted in alone.items():
            assert all(metric in event for event in wanted["evals"] for metric in runs[name].metrics), wanted["evals"]
            assert len(wanted["steps"]) == STEPS and len(wanted["evals"]) == 2, (name, wanted)
            assert together[name] == wanted, f"{name}: {together[name]}\nis not {wanted}"
        assert len({wanted["weights"] for wanted in alone.values()}) == len(alone), "some runs had the same result"


if __name__ == "__main__":
    main(globals())
