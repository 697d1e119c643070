"""Two workers of one thread and two servers beside PyTorch's DistributedDataParallel in two processes of one thread: three
models in f32 and in bf16, each side in each of its forms, all on the same cores. The batch is cut into two microbatches, as DDP
cuts it. Rounds alternate, and our fp32 runs a second time in each as the control. WEIR_BENCH_QUICK=1: one round of fewer steps
without torch.compile; WEIR_BENCH_MODELS names some of the models alone."""
import collections
import os
import random
import statistics
import subprocess
import tempfile
import time

import rounds
from formats import npy
from harness import ROOT, Folder, Process, program, read_metrics

IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
ROUNDS, WARM_UP, SAMPLES, LOOK_SECONDS = 1 if IS_QUICK else 3, 3, 1024, 0.03
PEER = os.path.join(ROOT, "build", "parity", "bin", "python")
SCRIPT = os.path.join(ROOT, "tests", "bench", "peer_ddp.py")
Model = collections.namedtuple("Model", "arguments sample batch steps forms")
Took = collections.namedtuple("Took", "seconds cpu")  # of a step; cpu: of all processes
# what a form has in the section `train`
FORMS = {"fp32": {}, "fp32 shm": {"collective": "shm"}, "fp32-fast": {"precision": "fp32-fast"},
         "bf16": {"precision": "bf16"}, "bf16 shm": {"precision": "bf16", "collective": "shm"}}
USUAL = ("fp32", "fp32 shm", "bf16", "bf16 shm")
MODELS = {
    "demo": Model(("lenet", "--channels", "32,64", "--hidden", "128", "--batch-norm"), (1, 28, 28), 128, 60, USUAL),
    "mlp": Model(("mlp", "--hidden", "4096,4096"), (1, 28, 28), 128, 30, USUAL),
    "resnet18": Model(("resnet18", "--input", "3,32,32", "--classes", "10"), (3, 32, 32), 64, 6, (*USUAL, "fp32-fast"))}
# by what both compute in: forms of ours, of PyTorch's
BESIDE = {"f32": (("fp32", "fp32 shm"), ("eager", "compiled")),
          "f32, ours by Winograd": (("fp32-fast",), ("eager", "compiled")),
          "bf16": (("bf16", "bf16 shm"), ("bf16 eager", "bf16 compiled"))}


def steps_of(model):
    return model.steps // 3 if IS_QUICK else model.steps


def write_inputs(folder, model):
    folder.model(*model.arguments, "--seed", 1)
    draw, size = random.Random(1), SAMPLES
    for dim in model.sample:
        size *= dim
    folder.file("x.npy", npy("|u1", (SAMPLES, *model.sample), draw.randbytes(size)))
    folder.file("y.npy", npy("|u1", (SAMPLES,), bytes(draw.randrange(10) for _ in range(SAMPLES))))


def write_spec(folder, model, form):
    options = "".join(f"  {key}: {value}\n" for key, value in FORMS[form].items())
    return folder.file("spec.yaml", f"""name: ddp
model: {{onnx: {model.arguments[0]}.onnx, loss: cross_entropy, labels: labels}}
data:
  root: {folder.path}
  train: {{format: npy, columns: {{image: x.npy, labels: y.npy}}}}
  transforms: [{{scale: 0.00392156862745098}}]
train:
{options}  steps: {WARM_UP + steps_of(model) + model.steps // 3}
  batch: {model.batch}
  microbatches: 2
  seed: 1
  optimizer: {{name: sgd, lr: 0.01, momentum: 0.9}}
checkpoint: {{every_steps: 1000000}}
workers: {{min: 2}}
""")


def cpu_seconds(pid):
    """Of the process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        pids, total = [pid, *file.read().split()], 0
    for each in pids:
        with open(f"/proc/{each}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def step_seconds(path):
    return [event["seconds"] for event in read_metrics(path) if event["event"] == "step"]


def passed(train, metrics, steps):
    """(steps, CPU seconds) once so many steps are done; None if the run has ended before."""
    while train.child.poll() is None:
        done, cpu = len(step_seconds(metrics)), cpu_seconds(train.child.pid)
        if done >= steps:
            return done, cpu
        time.sleep(LOOK_SECONDS)
    return None


def our_step(folder, model, form):
    """None where this CPU has not the form's precision."""
    spec = write_spec(folder, model, form)
    with tempfile.TemporaryDirectory(dir=folder.path) as out:
        metrics = os.path.join(out, "metrics.jsonl")
        with Process(program("weir"), "train", spec, "--workers", 2, "--servers", 2, "--threads", 1, "--out",
                     os.path.join(out, "run"), "--metrics", metrics) as train:
            begin, end = (passed(train, metrics, steps) for steps in (WARM_UP, WARM_UP + steps_of(model)))
            if not end and "without instructions" in train.output():
                return None
            assert end, train.output()
            train.wait()
        return Took(statistics.median(step_seconds(metrics)[WARM_UP:end[0]]), (end[1] - begin[1]) / (end[0] - begin[0]))


class Peer:
    """PyTorch's processes, which live on between rounds."""

    def __init__(self, name):
        self.child = subprocess.Popen([PEER, SCRIPT, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def step(self, form, steps):
        self.child.stdin.write(f"{form} {steps}\n")
        self.child.stdin.flush()
        return Took(*map(float, self.child.stdout.readline().split()))

    def close(self):
        self.child.stdin.close()
        self.child.wait()


def measure(name, model):
    """By form, what a step took in each round."""
    with Folder() as folder:
        write_inputs(folder, model)
        sides = {form: lambda form=form: our_step(folder, model, form) for form in model.forms}
        peer = Peer(name) if os.path.exists(PEER) else None
        if peer:
            sides.update({form: lambda form=form: peer.step(form, steps_of(model))
                          for _, forms in BESIDE.values() for form in forms if not IS_QUICK or "compiled" not in form})
        try:
            return rounds.alternate(sides, ROUNDS, control="fp32")
        finally:
            if peer:
                peer.close()


def best_of(seconds, forms):
    return min((form for form in forms if form in seconds), key=lambda form: statistics.median(seconds[form]), default=None)


def report(name, took):
    seconds, cpu = ({form: [getattr(each, key) for each in values] for form, values in took.items()} for key in Took._fields)
    print(f"training {name}, two workers of one thread beside DDP of two processes: ms of a step, and CPU ms of all processes")
    for form, values in seconds.items():
        print(f"    {form:14} {rounds.spread([1e3 * value for value in values], '{:.1f}'):>26}   "
              f"{rounds.spread([1e3 * value for value in cpu[form]], '{:.1f}')}")
    noise, cpu_noise = (rounds.noise(by_form["fp32"], by_form[rounds.CONTROL]) for by_form in (seconds, cpu))
    for what, (ours, theirs) in BESIDE.items():
        mine, peer = best_of(seconds, ours), best_of(seconds, theirs)
        if mine and peer:
            print(f"  {what}, {mine} beside DDP's {peer}: {rounds.beside(seconds[peer], seconds[mine], noise)} times its speed; "
                  f"of CPU time {rounds.beside(cpu[peer], cpu[mine], cpu_noise)}", flush=True)


def main():
    for name in os.environ.get("WEIR_BENCH_MODELS", "").split() or MODELS:
        report(name, measure(name, MODELS[name]))
    if not os.path.exists(PEER):
        print("PyTorch DDP: left out: `make parity` installs it")
