"""Forward and backward of a microbatch: our cpu backend beside PyTorch (eager), each on one thread, on the same
exports. Run by bench.py in the environment that `make parity` makes; arguments: the engine_bench program, then names of
models (tests/parity/models.py; default: those with one input)."""
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parity"))
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import export  # noqa: E402
import models  # noqa: E402
import rounds  # noqa: E402

ROUNDS, STEPS, SAMPLES = 3, 5, 8
DEFAULT = ("resnet18", "resnet50", "densenet121", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "squeezenet",
           "unet", "mixer", "vit", "gpt", "lstm", "gru", "autoencoder")


def loss_of(case, output, labels):
    if case.loss == "mse":
        return F.mse_loss(output, labels)
    classes_last = output.dim() == 3
    return F.cross_entropy(output.flatten(0, 1) if classes_last else output, labels.flatten() if classes_last else labels)


def torch_ms(case, module):
    """The median CPU time of a step of the module in training mode."""
    columns = [torch.tensor(column) for column in case.data(SAMPLES).values()]
    times = []
    for _ in range(STEPS):
        begin = time.thread_time()
        module.zero_grad()
        loss_of(case, module(*columns[:-1]), columns[-1]).backward()
        times.append((time.thread_time() - begin) * 1e3)
    return statistics.median(times)


def our_ms(program, case, path):
    command = [program, path, str(SAMPLES), str(STEPS), case.loss]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    took, memory = done.stdout.split()
    return float(took), int(memory)


def main():
    program, names = sys.argv[1], sys.argv[2:] or DEFAULT
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    print(f"engine: CPU time of forward and backward of {SAMPLES} samples on one thread, median of {ROUNDS} rounds")
    for name in names:
        case = models.FULL[name]
        torch.manual_seed(0)
        module = case.build().train()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            export.export(case, path, exporter="old", module=module)
            seen = rounds.alternate({"ours": lambda: our_ms(program, case, path), "theirs": lambda: (torch_ms(case, module), 0)},
                                    ROUNDS, control="ours")
        ours, theirs, again = ([ms for ms, _ in seen[side]] for side in ("ours", "theirs", rounds.CONTROL))
        print(f"  {name:20} {statistics.median(ours):8.1f} ms, PyTorch {statistics.median(theirs):8.1f} ms: "
              f"{rounds.beside(theirs, ours, rounds.noise(ours, again))} times its speed; {seen['ours'][-1][1] / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
