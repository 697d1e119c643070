"""train.compression, `make bench PARTS=compression`: two workers whose servers lie behind a link of 100 Mbit/s, samples/s and bytes a
step by compressor; and the accuracy on Fashion-MNIST."""
import itertools
import statistics

import late
import modes
import rounds
from harness import Folder, read_metrics, weir

COMPRESSIONS = {"none": "", "gradients bf16": "{gradients: bf16, parts: 2}", "gradients int8": "{gradients: int8, parts: 2}",
                "weights bf16": "{weights: bf16}", "both bf16": "{gradients: bf16, parts: 2, weights: bf16}",
                "int8, weights bf16": "{gradients: int8, parts: 2, weights: bf16}",
                **{f"{top}, weights bf16": f"{{gradients: {top}, parts: 2, weights: bf16}}" for top in ("top16", "top4", "top1")}}
MBIT, DELAY_SECONDS = 100, 0.001
EPOCHS = 4
MOMENTUM, PLAIN, ADAM = "{lr: 0.05, momentum: 0.9}", "{lr: 0.3}", "{name: adam, lr: 0.001}"
TOP = "{gradients: top4, parts: 2}"


def lines(value):
    free = "  deterministic: false\n" if "top" in value else ""
    return f"{free}  compression: {value}\n" if value else ""


def accuracy(folder, number, value, optimizer):
    train = (f"  epochs: {EPOCHS}\n  batch: 128\n  microbatches: 4\n  seed: 1\n  optimizer: {optimizer}\n"
             f"  schedule: {{name: cosine, warmup_steps: 50}}\n{lines(value)}")
    data = "  eval: {format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz}\n"
    spec, metrics = folder.spec(folder.file("lenet.onnx"), train=train, data=data), folder.file(f"accuracy-{number}.jsonl")
    weir("train", spec, "--workers", 2, "--threads", 1, "--out", folder.file(f"accuracy-{number}"), "--metrics", metrics)
    return read_metrics(metrics)[-1]["accuracy"]


def rates(folder, link):
    """By compressor, in turns: samples a second, and bytes of gradients and weights a step."""
    numbers = itertools.count()
    return rounds.alternate({name: lambda value=value: modes.over_link(folder, f"compression-{next(numbers)}", lines(value), link)
                             for name, value in COMPRESSIONS.items()}, late.ROUNDS, control="none")


def main():
    with Folder() as folder:
        folder.model("mlp", "--hidden", "1024", "--seed", "1")
        folder.model("lenet", "--seed", "1")
        print(f"compression: two workers behind a link of {MBIT} Mbit/s: samples/s beside none's, {late.ROUNDS} rounds; MB a step of gradients "
              f"and of weights; accuracy of LeNet on Fashion-MNIST after {EPOCHS} epochs, with {MOMENTUM}, top and the control with {PLAIN}")
        seen = rates(folder, modes.Link(MBIT, DELAY_SECONDS))
        base = [statistics.median(column) for column in zip(*seen["none"])]
        for number, (name, runs) in enumerate(seen.items()):
            rate, gradients, weights = map(statistics.median, zip(*runs))
            found = accuracy(folder, number, COMPRESSIONS.get(name, ""), PLAIN if name.startswith(("top", "control")) else MOMENTUM)
            print(f"  {name:20} {rate:7.0f} ({rounds.compare(seen, name, 'none', 0)})  {gradients / 1e6:6.3f} ({gradients / base[1]:.4f})  "
                  f"{weights / 1e6:6.3f} ({weights / base[2]:.4f})  {found:.2%}", flush=True)
        for number, optimizer in enumerate((MOMENTUM, ADAM)):
            found = [accuracy(folder, f"late-{number}-{bool(value)}", value, optimizer) for value in ("", TOP)]
            print(f"  {optimizer}: none {found[0]:.2%}, {TOP} {found[1]:.2%}", flush=True)
