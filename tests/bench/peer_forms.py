"""A step's forward and backward in each form that we and PyTorch have: fp32, fp32-fast and bf16 of our cpu backend beside
PyTorch eager and compiled, each in f32 and under autocast to bf16. Run by bench.py in the environment that `make parity`
makes; arguments: the engine_bench program, the weir program, then names of models (default: all). One thread, CPU time;
rounds alternate, and our fp32 runs a second time in each as the control. WEIR_BENCH_QUICK=1 takes one round."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parity"))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torchvision.models as tv  # noqa: E402
from torchvision.models import resnet  # noqa: E402

import rounds  # noqa: E402
import zoo  # noqa: E402

ROUNDS, STEPS, SAMPLES = 1 if os.environ.get("WEIR_BENCH_QUICK") else 5, 3, 32
OURS = ("fp32", "fp32-fast", "bf16")
THEIRS = {"eager": (False, False), "compiled": (True, False), "bf16 eager": (False, True), "bf16 compiled": (True, True)}
GPT = {"vocabulary": 4096, "context": 128, "width": 256, "depth": 4, "heads": 4}


def images(channels, side):
    return lambda: torch.rand(SAMPLES, channels, side, side) * 2 - 1


def tokens():
    return torch.randint(GPT["vocabulary"], (SAMPLES, GPT["context"]))


# kind of `weir model`: its options, the module, what is fed to it, the greatest label
MODELS = {
    "resnet18": (("--input", "3,32,32", "--classes", "10"),
                 lambda: zoo.narrow_resnet(resnet.BasicBlock, [2, 2, 2, 2], 64, 10, True), images(3, 32), 10),
    "mobilenet_v2": (("--input", "3,64,64", "--classes", "10", "--dropout", "0"),
                     lambda: tv.mobilenet_v2(num_classes=10, dropout=0), images(3, 64), 10),
    "vit": (("--input", "3,64,64", "--patch", "8", "--width", "192", "--depth", "6", "--heads", "6", "--classes", "10"),
            lambda: tv.VisionTransformer(64, 8, 6, 6, 192, 768, num_classes=10), images(3, 64), 10),
    "gpt": ([word for name, value in GPT.items() for word in (f"--{name}", str(value))],
            lambda: zoo.GPT(*GPT.values()), tokens, GPT["vocabulary"]),
    "lenet": (("--batch-norm",), lambda: zoo.LeNet([1, 6, 16], 400, [120, 84], 10), images(1, 28), 10),
}


def our_ms(program, path, precision):
    """None where this CPU has not the precision."""
    done = subprocess.run([program, path, str(SAMPLES), str(STEPS), "cross_entropy", f"cpu:{precision}"],
                          capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if "without instructions" in done.stderr:
        return None
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[0])


class Peer:
    """A module in one of PyTorch's forms."""

    def __init__(self, case, form):
        _, build, feed, classes = case
        is_compiled, self.is_bf16 = THEIRS[form]
        torch.manual_seed(0)
        self.plain = build().train()
        self.module = torch.compile(self.plain) if is_compiled else self.plain
        self.data = feed()
        labels = self.data.shape if self.data.dim() == 2 else self.data.shape[:1]
        self.labels = torch.randint(classes, labels).flatten()
        self.step()

    def step(self):
        self.plain.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            scores = self.module(self.data)
        F.cross_entropy(scores.float().reshape(len(self.labels), -1), self.labels).backward()

    def ms(self):
        times = []
        for _ in range(STEPS):
            begin = time.thread_time()
            self.step()
            times.append((time.thread_time() - begin) * 1e3)
        return statistics.median(times)


def measure(case, engine, path):
    """By form, the milliseconds of each round."""
    sides = {form: lambda form=form: our_ms(engine, path, form) for form in OURS}
    sides.update({form: Peer(case, form).ms for form in THEIRS})
    return rounds.alternate(sides, ROUNDS, control="fp32")


def best_of(took, forms):
    return min((form for form in forms if form in took), key=lambda form: statistics.median(took[form]))


def main():
    engine, weir, names = sys.argv[1], sys.argv[2], sys.argv[3:] or MODELS
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    print(f"forms: CPU time of forward and backward of {SAMPLES} samples on one thread, medians of {ROUNDS} rounds")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            subprocess.run([weir, "model", name, *MODELS[name][0], "-o", path], check=True, capture_output=True)
            took = measure(MODELS[name], engine, path)
        ours, theirs = best_of(took, OURS), best_of(took, THEIRS)
        noise = rounds.noise(took["fp32"], took[rounds.CONTROL])
        print(f"  {name}: " + ", ".join(f"{form} {statistics.median(times):.1f} ms" for form, times in took.items()))
        print(f"    best beside best ({ours}, PyTorch {theirs}) {rounds.beside(took[theirs], took[ours], noise)} times its speed")
        for form in (*OURS[1:], rounds.CONTROL):
            if form in took:
                print(f"    {form} beside fp32 {rounds.beside(took['fp32'], took[form], noise)}", flush=True)


if __name__ == "__main__":
    main()
