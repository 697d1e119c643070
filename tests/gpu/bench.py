#!/usr/bin/env python3
"""`make gpu-bench`: training on this machine's GPU with servers in the loop, beside PyTorch (eager and compiled) on the
same GPU in the same run. Arguments: names of models below, default: all; --no-timeline: in half the time, without the
share of a step that is not hidden.

A line per side: the median time of a step and what that is in samples (tokens) a second; then the ratio, the share of the
step in which no kernel of ours ran, and the least time that the step's multiply-adds and bytes take on this device, by
its own matrix product and copy measured in the same run. Data are random: what is compared is speed.
PyTorch's side needs torch and torchvision in the Python that runs this (WEIR_PEER_PYTHON names another)."""
import json
import os
import statistics
import subprocess
import sys

from gpu import ROOT, write_npy
from harness import Folder, Skip, read_metrics, skip_unless_gpu, weir

PEER_PYTHON = os.environ.get("WEIR_PEER_PYTHON", sys.executable)
STEPS, WARM_UP, TRACED = 60, 20, 12
SERVERS = max(1, min(4, (os.cpu_count() or 1) // 4))
MODELS = {  # `weir model` options; samples of a step; what a sample is
    "resnet50": ("resnet50", ("--input", "3,224,224", "--classes", "1000"), 256, (3, 224, 224)),
    "mobilenet_v2": ("mobilenet_v2", ("--input", "3,112,112", "--classes", "1000"), 256, (3, 112, 112)),
    "vit_s_16": ("vit", ("--width", "384", "--heads", "6", "--classes", "1000"), 256, (3, 224, 224)),
    "gpt2": ("gpt", ("--context", "1024"), 16, 1024),
}
TEXT = 1 << 22  # tokens


def make_spec(folder, name, steps):
    kind, options, batch, sample = MODELS[name]
    model = folder.file(name + ".onnx")
    weir("model", kind, *options, "-o", model)
    if isinstance(sample, int):
        tokens = bytes(byte & (0x7f if place % 2 else 0xff) for place, byte in enumerate(os.urandom(2 * TEXT)))
        folder.file("tokens.bin", tokens)
        train = f"{{format: tokens, file: tokens.bin, dtype: u16, context: {sample}}}"
        transforms = "[]"
    else:
        samples, size = 4 * batch, sample[0] * sample[1] * sample[2]
        write_npy(folder.file("images.npy"), "u1", (samples, *sample), (os.urandom(size) for _ in range(samples)))
        write_npy(folder.file("labels.npy"), "u1", (samples,), [os.urandom(samples)])
        train = "{format: npy, columns: {image: images.npy, labels: labels.npy}}"
        transforms = "[{scale: 0.00392156862745098}]"
    return model, folder.file(f"{name}-{steps}.yaml", f"""name: {name.replace('_', '-')}
model: {{onnx: {model}, loss: cross_entropy}}
data: {{root: {folder.path}, train: {train}, transforms: {transforms}}}
train:
  steps: {steps}
  batch: {batch}
  microbatches: 1
  precision: bf16
  deterministic: false
  optimizer: {{name: sgd, lr: 0.01, momentum: 0.9}}
checkpoint: {{every_steps: {steps}, keep: 1}}
""")


def train(folder, spec, *options):
    metrics = spec + ".jsonl"
    weir("train", spec, "--device", "cuda", "--servers", SERVERS, "--out", spec + ".out", "--force", "--metrics", metrics,
         *options)
    return [event["seconds"] for event in read_metrics(metrics) if event["event"] == "step"]


def union_us(events):
    """The time that at least one of the spans covers."""
    total, end = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event["ts"]):
        total += max(0.0, event["ts"] + event["dur"] - max(end, event["ts"]))
        end = max(end, event["ts"] + event["dur"])
    return total


def exposed_share(folder, name):
    """Of the time from the first kernel to the last, past the warm-up, what no kernel covers."""
    trace = folder.file(name + ".trace")
    train(folder, make_spec(folder, name, TRACED)[1], "--trace", trace)
    with open(trace) as file:
        spans = [event for event in json.load(file) if event.get("ph") == "X" and event["cat"] == "compute"]
    spans = [event for event in spans if event.get("args", {}).get("step", 0) >= TRACED // 2]
    whole = max(event["ts"] + event["dur"] for event in spans) - min(event["ts"] for event in spans)
    return 1 - union_us(spans) / whole


def ask_peer(name):
    """What peer_torch.py says: what the device can do, or None; {mode: seconds a step}."""
    command = [PEER_PYTHON, os.path.join(ROOT, "tests", "gpu", "peer_torch.py"), str(STEPS), f"{name}={MODELS[name][2]}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode:
        print(f"  PyTorch is not measured: {done.stderr.strip().splitlines()[-1:]}")
    for one in said:
        if "error" in one:
            print(f"  PyTorch {one['mode']}: not measured: {one['error']}")
    return said[0] if said else None, {one["mode"]: one["seconds"] for one in said if "seconds" in one}


def bench(name, has_timeline):
    batch, sample = MODELS[name][2:]
    unit, units = ("tokens", batch * sample) if isinstance(sample, int) else ("samples", batch)
    with Folder() as folder:
        model, spec = make_spec(folder, name, STEPS)
        ours = statistics.median(train(folder, spec)[WARM_UP:])
        cost = json.loads(weir("inspect", model, "--batch", batch, "--json").stdout)
        print(f"{name}, bf16, batch {batch}: {ours * 1e3:.2f} ms a step, {units / ours:.0f} {unit}/s", flush=True)
        limits, theirs = ask_peer(name)
        for mode, seconds in theirs.items():
            print(f"  PyTorch {mode}: {seconds * 1e3:.2f} ms, {units / seconds:.0f} {unit}/s; "
                  f"ratio to it {seconds / ours:.2f}")
        if has_timeline:
            print(f"  not hidden behind compute: {100 * exposed_share(folder, name):.1f} % of a step")
    if limits:  # backward multiplies twice; an activation (as f32 in inspect's figure) is written and read in bf16
        flops = 3 * 2 * cost["multiply_adds"] / limits["flops"]
        moved = 2 * cost["memory"]["activations_bytes"] / 2 / limits["bytes"]
        print(f"  floor: {1e3 * flops:.2f} ms of multiply-adds, {1e3 * moved:.2f} ms of activations; {limits['device']}: "
              f"bf16 products {limits['flops'] / 1e12:.0f} TFLOP/s, copies {limits['bytes'] / 1e12:.2f} TB/s")


def main():
    try:
        skip_unless_gpu()
    except Skip as reason:
        print(f"gpu-bench: nothing measured: {reason}")
        return
    for name in [name for name in sys.argv[1:] if name != "--no-timeline"] or list(MODELS):
        bench(name, "--no-timeline" not in sys.argv)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
