"""What bf16 costs in accuracy: the demo and the specs of examples/, made and trained as their first lines say, in fp32 and
with `train.precision=bf16`, and evaluated on all samples. `make bench PARTS=bf16-accuracy`; WEIR_BENCH_EXAMPLES names
some of them alone, WEIR_BENCH_SEEDS more seeds than 1. Long ones are cut short, in both alike. An example whose data or
whose Python packages are not here is left out, and so said."""
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from typing import NamedTuple

from harness import BUILD, ROOT, done_event, read_metrics

PRECISIONS = ("fp32", "bf16")
POINTS_MAX = 0.3  # that bf16 may lose
PARITY = os.path.join(ROOT, "build", "parity", "bin")  # a Python with PyTorch, where there is none else


class Example(NamedTuple):
    spec: str
    settings: tuple = ()  # PATH=VALUE: what makes it shorter
    model: tuple = ()  # options of `weir model` beside those of the spec's first lines
    needs: str = ""  # below examples/; what nobody can make here


EXAMPLES = {
    "clicks": Example("clicks"),
    "from_pytorch": Example("from_pytorch"),
    "fashion-mnist": Example("fashion-mnist"),
    "demo": Example("fashion-mnist", model=("--channels", "32,64", "--hidden", "128", "--seed", "1")),
    "translate": Example("translate"),
    "vit": Example("fashion-mnist-vit", settings=("train.epochs=1",)),
    "resnet": Example("fashion-mnist-resnet", model=("--width", "16")),
    "shakespeare": Example("shakespeare", settings=("train.steps=250",), needs="shakespeare/input.txt"),
    "cifar10": Example("cifar10", settings=("train.steps=40",), needs="cifar10/train"),
}


class Missing(Exception):
    """What an example needs and is not here."""


def commands(example):
    """Those that the first lines of a spec name: (what makes model and data, the options of `weir train`)."""
    with open(os.path.join(ROOT, "examples", example.spec + ".yaml")) as file:
        found = re.findall(r"^# {3}(.*)", file.read(), re.MULTILINE)
    train = next(command for command in found if command.startswith("weir train "))
    return found[:found.index(train)], shlex.split(train)[3:]


def make(example, environment):
    """Its model and its data, as files below examples/."""
    if example.needs and not os.path.exists(os.path.join(ROOT, "examples", example.needs)):
        raise Missing(f"there is no examples/{example.needs}")
    for command in commands(example)[0]:
        if command.startswith("weir model"):
            command += " " + shlex.join(example.model)
        done = subprocess.run(command, shell=True, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"`{command}` ended with {done.returncode}: {(done.stderr.strip() or '?').splitlines()[-1]}")


def train(name, example, seed, precision, environment):
    """The last evaluation."""
    out = os.path.join(BUILD, "bench", f"{name}-{precision}-{seed}")
    command = ["weir", "train", f"examples/{example.spec}.yaml", *commands(example)[1], "--threads", "1", "--force", "--out",
               out, *example.settings, f"train.seed={seed}", f"train.precision={precision}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{shlex.join(command)}: {done.stderr[-2000:]}"
    metrics = os.path.join(out, "metrics.jsonl")
    last = [event for event in read_metrics(metrics) if event["event"] == "eval"][-1]
    steps = done_event(metrics)["steps"]
    shutil.rmtree(out)
    return {**last, "steps": steps}


def report(name, found):
    """Whether bf16 is near enough. found: (fp32's evaluation, bf16's), by seed."""
    metric = "auc" if "auc" in found[0][0] else "accuracy"
    points = [100 * (half[metric] - whole[metric]) for whole, half in found]
    for whole, half in found:
        print(f"  {name:14} {whole['steps']:5} steps  {metric:8} {whole[metric]:8.2%} {half[metric]:8.2%}"
              f"  {100 * (half[metric] - whole[metric]):+.2f} points   loss {whole['loss']:.4f} {half['loss']:.4f}"
              f"  {100 * (half['loss'] / whole['loss'] - 1):+.2f} %", flush=True)
    return statistics.mean(points) >= -POINTS_MAX


def main():
    names = os.environ.get("WEIR_BENCH_EXAMPLES", "").split() or EXAMPLES
    seeds = os.environ.get("WEIR_BENCH_SEEDS", "1").split()
    python = f"{os.path.dirname(sys.executable)}:" if not os.path.exists(PARITY) else f"{PARITY}:"
    environment = {**os.environ, "PATH": f"{BUILD}:{python}{os.environ['PATH']}"}
    print("bf16-accuracy: of examples after training in fp32 and in bf16")
    worse = []
    for name in names:
        try:
            make(EXAMPLES[name], environment)
        except Missing as reason:
            print(f"  {name:14} left out: {reason}", flush=True)
            continue
        found = [[train(name, EXAMPLES[name], seed, precision, environment) for precision in PRECISIONS] for seed in seeds]
        worse += [] if report(name, found) else [name]
    if worse:
        sys.exit(f"bf16-accuracy: bf16 loses more than {POINTS_MAX} points on average: {', '.join(worse)}")
