"""The update of each optimizer that treats elements by themselves: ours beside PyTorch's fastest (fused where it has
one, else foreach), each on one thread. Run by bench.py in the environment that `make parity` makes; argument: the
optimizer_bench program."""
import json
import os
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parity"))
import torch  # noqa: E402

import optimizers  # noqa: E402
import rounds  # noqa: E402

ROUNDS, STEPS, ELEMS = 3, 15, 64 * 65536
OPTIONS = {"sgd": {"momentum": 0.9, "weight_decay": 0.0005}, "rmsprop": {"momentum": 0.9}}
FUSED = ("sgd", "adam", "adamw", "amsgrad", "adagrad")
ALONE = ("lion",)  # a few lines of Python are no peer


def our_ns(program, name):
    options = json.dumps({"name": name, **OPTIONS.get(name, {})})
    took, size = subprocess.run([program, options, str(STEPS)], capture_output=True, text=True, check=True,
                                timeout=600).stdout.split()
    return float(took), int(size)


def torch_ns(name):
    weights = torch.nn.Parameter(torch.randn(ELEMS))
    weights.grad = torch.randn(ELEMS)
    kind = {"fused": True} if name in FUSED else {"foreach": True}
    optimizer, times = optimizers.MAKERS[name]([weights], lr=1e-3, **kind, **OPTIONS.get(name, {})), []
    for _ in range(STEPS):
        begin = time.thread_time()
        optimizer.step()
        times.append((time.thread_time() - begin) * 1e9 / ELEMS)
    return statistics.median(times)


def main():
    program = sys.argv[1]
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    names = subprocess.run([program], capture_output=True, text=True, check=True).stdout.split()
    print(f"optimizers: CPU time of an update of {ELEMS} elements on one thread, ns an element, median of {ROUNDS} rounds")
    for name in names:
        sides = {"ours": lambda: our_ns(program, name), "theirs": lambda: None if name in ALONE else (torch_ns(name), 0)}
        measured = rounds.alternate(sides, ROUNDS, control="ours")
        seen = {side: [ns for ns, _ in values] for side, values in measured.items()}
        median, size = statistics.median(seen["ours"]), measured["ours"][0][1]
        beside = (f", PyTorch {'fused' if name in FUSED else 'foreach'} {statistics.median(seen['theirs']):.2f}, ratio "
                  f"{rounds.beside(seen['theirs'], seen['ours'], rounds.noise(seen['ours'], seen[rounds.CONTROL]))}"
                  ) if "theirs" in seen else ""
        print(f"  {name}: {median:.2f} ({size / median:.1f} GB/s){beside}", flush=True)


if __name__ == "__main__":
    main()
