"""Runs on clusters whose workers have a GPU, alone and beside CPU workers."""
import json
import random

from gpu import numbers, write_npy
from harness import (Cluster, Folder, Process, main, outcome, program, read_metrics, skip_unless_gpu, wait_for,
                     weir)

STEPS, BATCH = 30, 64


def make_spec(folder, name, train="", workers=1):
    """A small convolutional net on samples whose brightest quarter is their class: it learns in 30 steps."""
    draw = random.Random(7)
    samples, pixels, labels = STEPS * BATCH, [], []
    for _ in range(samples):
        label = draw.randrange(4)
        for row in range(16):
            for column in range(16):
                lit = (row >= 8) * 2 + (column >= 8) == label
                pixels.append(draw.randrange(256) if lit else draw.randrange(64))
        labels.append(label)
    write_npy(folder.file("images.npy"), "u1", (samples, 1, 16, 16), [numbers("u1", pixels)])
    write_npy(folder.file("labels.npy"), "i8", (samples,), [numbers("i8", labels)])
    model = folder.file("lenet.onnx")
    weir("model", "lenet", "--input", "1,16,16", "--classes", "4", "--channels", "8,16", "--hidden", "32",
         "--batch-norm", "-o", model)
    return folder.file(name + ".yaml", f"""name: {name}
model: {{onnx: {model}, loss: cross_entropy}}
data:
  root: {folder.path}
  train: {{format: npy, columns: {{image: images.npy, labels: labels.npy}}}}
  eval: {{format: npy, columns: {{image: images.npy, labels: labels.npy}}}}
  transforms: [{{scale: 0.00392156862745098}}]
train: {{steps: {STEPS}, batch: {BATCH}, microbatches: 4, seed: 5, optimizer: {{lr: 0.05, momentum: 0.9}}{train}}}
workers: {{min: {workers}}}
""")


def train(folder, spec, tag, *options):
    metrics = f"{spec}.{tag}.jsonl"
    weir("train", spec, "--out", f"{spec}.{tag}", "--metrics", metrics, "--servers", 2, "--threads", 1, *options)
    return metrics


def losses(metrics):
    return [event["loss"] for event in read_metrics(metrics) if event["event"] == "step"]


def greatest_error(ours, theirs):
    assert len(ours) == len(theirs) == STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))


def test_a_gpu_follows_the_cpu_and_gives_the_same_weights_each_time():
    skip_unless_gpu()
    with Folder() as folder:
        spec = make_spec(folder, "alone")
        on_cpu = train(folder, spec, "cpu", "--device", "cpu")
        first = train(folder, spec, "first", "--device", "cuda")
        second = train(folder, spec, "second", "--device", "cuda", "--workers", 2)
        error = greatest_error(losses(first), losses(on_cpu))
        print(f"# greatest relative error of the loss beside the CPU {error:.2e}")
        assert error < 5e-3
        assert outcome(first) == outcome(second)


def test_lower_precisions_learn_as_well():
    skip_unless_gpu()
    with Folder() as folder:
        full = losses(train(folder, make_spec(folder, "fp32"), "gpu", "--device", "cuda"))
        for precision, tolerance in (("tf32", 0.05), ("bf16", 0.15)):
            spec = make_spec(folder, precision, f", precision: {precision}")
            low = losses(train(folder, spec, "gpu", "--device", "cuda"))
            error = abs(sum(low) - sum(full)) / sum(full)
            print(f"# {precision}: mean loss differs by {error:.2e}")
            assert error < tolerance and low[-1] < low[0] / 2


def test_stages_on_two_workers_give_the_weights_of_one():
    """Which may be on one GPU: what crosses goes from process to process."""
    skip_unless_gpu()
    with Folder() as folder:
        for precision in "fp32", "bf16":
            keys = f", precision: {precision}"
            whole = train(folder, make_spec(folder, precision, keys), "whole", "--device", "cuda")
            staged = make_spec(folder, f"{precision}-staged", keys, workers="2, stages: 2")
            assert outcome(train(folder, staged, "staged", "--device", "cuda", "--workers", 2)) == outcome(whole), precision


def test_a_gpu_and_a_cpu_worker_train_together_where_bits_may_differ():
    skip_unless_gpu()
    with Folder() as folder:
        spec, metrics = make_spec(folder, "mixed", ", deterministic: false", workers=2), folder.file("mixed.jsonl")
        with Cluster(folder, servers=2, workers=0) as cluster:
            for device in ("cuda", "cpu"):
                cluster.processes.append(Process(program("weir-worker"), "--coordinator", cluster.address, "--device",
                                                 device, "--threads", 1))
            wait_for(lambda: len(cluster.json("workers")) == 2, "both workers")
            weir("submit", spec, "--follow", "--metrics", metrics, "--coordinator", cluster.address)
        mixed = losses(metrics)
        assert len(mixed) == STEPS and mixed[-1] < mixed[0] / 2
        assert any(event["workers"] == 2 for event in read_metrics(metrics) if event["event"] == "step")


def overlap(spans, others):
    """How long a span of one kind and one of the other were under way together, in microseconds."""
    return sum(max(0, min(a["ts"] + a["dur"], b["ts"] + b["dur"]) - max(a["ts"], b["ts"]))
               for a in spans for b in others)


def test_the_timeline_shows_gradients_leaving_while_backward_runs():
    """Of a model whose backward pass goes on for long behind the first gradient. A machine that is slow to send what is
    there has some more runs."""
    skip_unless_gpu()
    with Folder() as folder:
        spec, model = make_spec(folder, "timeline"), folder.file("resnet18.onnx")
        weir("model", "resnet18", "--input", "1,16,16", "--classes", "4", "-o", model)
        for attempt in range(5):
            trace = folder.file(f"trace-{attempt}.json")
            train(folder, spec, f"traced-{attempt}", "--device", "cuda", "--trace", trace, f"model.onnx={model}",
                  "train.microbatches=1")
            with open(trace) as file:
                events = [event for event in json.load(file) if event.get("ph") == "X"]
            rows = {kind: [event for event in events if event["cat"] == kind] for kind in ("compute", "down", "up", "push")}
            assert all(rows.values()), {kind: len(row) for kind, row in rows.items()}
            if overlap(rows["push"], rows["compute"]) > 0:
                print(f"# seen in run {attempt + 1}")
                return
        raise AssertionError("no gradient left while another was computed")


if __name__ == "__main__":
    main(globals())
