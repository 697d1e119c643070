"""Makes tests/bench/search_table.csv: what 512 ways to train a small LeNet come to after 1, 3, 9 and 27 epochs, by sweeps of
Weir's own (`search: grid`, `schedule: none`, every trial to its end). Searchers are compared on it without training.

usage: search_table.py FILE.csv          (about half an hour of CPU time; the same numbers however long it takes)

A row is the index of each dimension's value, the accuracies at the four rungs, and the losses. The first 1,536 training images
and 1,024 test images of Fashion-MNIST. What diverged has accuracy 0.1 and an empty loss from there on."""
import csv
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from harness import Cluster, Folder, read_metrics, weir

TRAIN_SAMPLES, EVAL_SAMPLES, EPOCHS, CHANCE = 1536, 1024, (1, 3, 9, 27), 0.1
RATES = [0.003125 * 2**i for i in range(8)]
MOMENTA = (0, 0.5, 0.8, 0.95)
DECAYS = (0.00001, 0.0003, 0.003, 0.03)
BATCHES = (32, 64, 128, 256)  # a sweep each: rungs are steps
SPEC = """name: small
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {root}
  train: {{format: idx, images: train-images-idx3, labels: train-labels-idx1}}
  eval: {{format: idx, images: t10k-images-idx3, labels: t10k-labels-idx1}}
  transforms: [{{scale: 0.00392156862745098}}, {{normalize: {{mean: [0.2860], std: [0.3530]}}}}]
train:
  steps: {steps}
  batch: {batch}
  microbatches: 2
  seed: 3
  optimizer: {{name: sgd, lr: 0.1, momentum: 0}}
eval: {{every_steps: {steps}}}
"""
SWEEP = """name: table
spec: {spec}
objective: {{metric: accuracy}}
search: {{name: grid}}
schedule: {{name: none, rungs: {rungs}}}
budget: {{trials: {trials}}}
concurrency: 1
space:
  train.optimizer.lr: {rates}
  train.optimizer.momentum: {momenta}
  train.optimizer.weight_decay: {decays}
"""


def sweep_of(folder, batch):
    """(the sweep's file, its rungs)."""
    rungs = [epochs * TRAIN_SAMPLES // batch for epochs in EPOCHS]
    model = folder.model("lenet", "--channels", "6,12", "--hidden", "64", "--seed", "1")
    spec = folder.file(f"spec-{batch}.yaml", SPEC.format(model=model, root=folder.path, steps=rungs[-1], batch=batch))
    trials = len(RATES) * len(MOMENTA) * len(DECAYS)
    return folder.file(f"sweep-{batch}.yaml", SWEEP.format(spec=spec, rungs=rungs, trials=trials, rates=RATES,
                                                           momenta=list(MOMENTA), decays=list(DECAYS))), rungs


def losses_of(folder, at, run, rungs):
    metrics = folder.file(run + ".jsonl")
    weir("watch", run, *at, "--metrics", metrics)
    losses = {event["step"]: event["loss"] for event in read_metrics(metrics) if event["event"] == "eval"}
    return [losses[rung] for rung in rungs]


def row_of(folder, at, batch, trial, rungs):
    index = [*divmod(trial["number"], len(MOMENTA) * len(DECAYS))]
    index = [index[0], *divmod(index[1], len(DECAYS)), BATCHES.index(batch)]
    values = {value["path"]: float(value["value"]) for value in trial["values"]}
    assert [RATES[index[0]], MOMENTA[index[1]], DECAYS[index[2]]] == list(values.values()), (index, values)
    is_whole = trial["state"] == "done"
    assert is_whole or trial["state"] == "failed", trial
    losses = [f"{loss:.4f}" for loss in losses_of(folder, at, trial["run"], rungs)] if is_whole else []
    missing = len(rungs) - len(trial["results"])
    return [*index, *(f"{value:.4f}" for value in trial["results"] + [CHANCE] * missing), *losses, *[""] * (4 - len(losses))]


def main():
    with Folder() as folder, open(sys.argv[1], "w", newline="") as file:
        folder.small_data(TRAIN_SAMPLES, EVAL_SAMPLES)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["lr", "momentum", "weight_decay", "batch", *(f"accuracy{epochs}" for epochs in EPOCHS),
                        *(f"loss{epochs}" for epochs in EPOCHS)])
        for batch in BATCHES:
            path, rungs = sweep_of(folder, batch)
            with Cluster(folder, workers=2, store="file://" + folder.file(f"store-{batch}")) as cluster:
                at = ("--coordinator", cluster.address)
                sweep = weir("sweep", path, *at).stdout.strip()
                weir("sweep", "watch", sweep, *at)
                for trial in cluster.json("sweep", "status", sweep)["trials"]:
                    table.writerow(row_of(folder, at, batch, trial, rungs))
            file.flush()


if __name__ == "__main__":
    main()
