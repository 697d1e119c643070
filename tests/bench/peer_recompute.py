"""Activations that are computed again: memory and time of a microbatch of our cpu backend beside PyTorch's, eager and with
torch.utils.checkpoint. `auto` may take half of the memory that `none` takes or, where even `full` takes more than that, what
is midway between both. Run by bench.py in the environment that `make parity` makes; arguments: the engine_bench program, the
weir program. Each figure is of a process of its own, on one thread. WEIR_BENCH_QUICK=1 tries it out with small models."""
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

IS_QUICK = bool(os.environ.get("WEIR_BENCH_QUICK"))
ROUNDS, STEPS = (1, 2) if IS_QUICK else (3, 3)
HERE = os.path.abspath(__file__)
GPT = {"vocabulary": 50257, "context": 256, "width": 768, "depth": 12, "heads": 12}
SIDE = 64 if IS_QUICK else 224  # of the images
SAMPLES = {"gpt": 2, "resnet50": 2 if IS_QUICK else 8}
if IS_QUICK:
    GPT.update(vocabulary=500, width=96, depth=4)
OPTIONS = {"gpt": [word for name, value in GPT.items() for word in (f"--{name}", str(value))],
           "resnet50": ["--input", f"3,{SIDE},{SIDE}"]}  # of `weir model`
SEQUENTIAL = 4  # segments of checkpoint_sequential
PEERS = ("eager", "sequential", "blocks")


def anonymous_bytes():
    """Of this process: what is resident and not of a file."""
    with open("/proc/self/statm") as file:
        _, resident, shared, *_ = map(int, file.read().split())
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


class Peak:
    """The greatest anonymous memory while its block runs, looked at every two milliseconds."""

    def __enter__(self):
        self.bytes, self.is_over = anonymous_bytes(), False
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.is_over:
            self.bytes = max(self.bytes, anonymous_bytes())
            time.sleep(0.002)

    def __exit__(self, *unused):
        self.is_over = True
        self.thread.join()


def checkpointed(blocks, mode):
    """How the layers in the middle are called."""
    from torch.utils.checkpoint import checkpoint, checkpoint_sequential

    def call(x):
        if mode == "sequential":
            return checkpoint_sequential(blocks, SEQUENTIAL, x, use_reentrant=False)
        for block in blocks:
            x = block(x) if mode == "eager" else checkpoint(block, x, use_reentrant=False)
        return x
    return call


def gpt(mode):
    import torch
    import zoo
    module = zoo.GPT(*GPT.values())
    middle = checkpointed(list(module.transformer.h), mode)
    tokens = torch.randint(GPT["vocabulary"], (SAMPLES["gpt"], GPT["context"] + 1))

    def forward():
        x = middle(module.transformer.wte(tokens[:, :-1]) + module.transformer.wpe.weight)
        logits = module.transformer.ln_f(x) @ module.transformer.wte.weight.T
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    return module, forward


def resnet50(mode):
    import torch
    import torchvision
    module = torchvision.models.resnet50().train()
    middle = checkpointed([*module.layer1, *module.layer2, *module.layer3, *module.layer4], mode)
    images, labels = torch.randn(SAMPLES["resnet50"], 3, SIDE, SIDE), torch.randint(1000, (SAMPLES["resnet50"],))

    def forward():
        x = middle(module.maxpool(module.relu(module.bn1(module.conv1(images)))))
        return torch.nn.functional.cross_entropy(module.fc(module.avgpool(x).flatten(1)), labels)
    return module, forward


def drop_gradient(parameter):
    parameter.grad = None


def measure_torch(name, mode):
    """Prints the median milliseconds of a step, and what it took besides the weights. A gradient goes as soon as it is there,
    as it does on our side, where it is on its way to a server then."""
    import torch
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(HERE)), "parity"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.set_flush_denormal(True)
    module, forward = {"gpt": gpt, "resnet50": resnet50}[name](mode)
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(drop_gradient)
    forward().backward()
    times, peak = [], 0
    for _ in range(STEPS):
        ctypes.CDLL(None).malloc_trim(0)  # what the step before left is not there for this one
        before, begin = anonymous_bytes(), time.thread_time()
        with Peak() as seen:
            forward().backward()
        times.append((time.thread_time() - begin) * 1e3)
        peak = max(peak, seen.bytes - before)
    print(statistics.median(times), peak)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=1800,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    return [float(word) for word in done.stdout.split()]


def compare(bench, name, model):
    def ours(mode, most=0):
        """(ms, bytes of the program, resident bytes more by making and running it, unreplayed bytes, replays, steps)"""
        return run(bench, model, str(SAMPLES[name]), str(STEPS), "cross_entropy", "cpu", mode, str(most))

    sides = {"none": [], "auto": [], "full": [], **{peer: [] for peer in PEERS}}
    none, full = ours("none")[1], ours("full")[1]
    most = int(none / 2 if none / 2 >= full else (none + full) / 2)  # of auto
    for _ in range(ROUNDS):
        for mode in ("none", "auto", "full"):
            sides[mode].append(ours(mode, most))
        for peer in PEERS:
            sides[peer].append(run(sys.executable, HERE, name, peer))
    print(f"{name}, {SAMPLES[name]} samples: CPU time of a microbatch on one thread, and its memory besides the weights; medians "
          f"of {ROUNDS} rounds; auto may take {most / none:.2f} of none")
    middle = {side: [statistics.median(column) for column in zip(*rows)] for side, rows in sides.items()}
    for mode in ("none", "auto", "full"):
        took, planned, more, _, replays, steps = middle[mode]
        print(f"  recompute {mode:10} {took:8.0f} ms, {planned / 1e6:6.0f} MB planned, {more / 1e6:6.0f} MB resident, "
              f"{replays:.0f} of {steps:.0f} steps again")
    names = {"eager": "PyTorch eager", "sequential": f"checkpoint_sequential of {SEQUENTIAL}", "blocks": "checkpoint of each block"}
    for peer in PEERS:
        took, more = middle[peer]
        print(f"  {names[peer]:27} {took:8.0f} ms, {more / 1e6:6.0f} MB resident")
    for mode, peer in (("none", "eager"), ("auto", "sequential"), ("full", "sequential"), ("auto", "blocks"), ("full", "blocks")):
        print(f"  {mode} to {names[peer]}: time {middle[mode][0] / middle[peer][0]:.2f}, memory "
              f"{middle[mode][2] / middle[peer][1]:.2f}", flush=True)


def main():
    bench, weir = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for name, options in OPTIONS.items():
            model = os.path.join(folder, name + ".onnx")
            subprocess.run([weir, "model", name, *options, "-o", model], check=True, stdout=subprocess.DEVNULL)
            compare(bench, name, model)


if __name__ == "__main__":
    measure_torch(*sys.argv[1:]) if sys.argv[1] in OPTIONS else main()
