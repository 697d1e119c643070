"""train.compression, `make bench PARTS=compression`: two workers whose servers lie behind a link of 100 Mbit/s, samples/s and bytes a
step by compressor; and the accuracy on Fashion-MNIST."""
import modes
from harness import Folder, read_metrics, weir

COMPRESSIONS = {"none": "", "gradients bf16": "{gradients: bf16, parts: 2}", "gradients int8": "{gradients: int8, parts: 2}",
                "weights bf16": "{weights: bf16}", "both bf16": "{gradients: bf16, parts: 2, weights: bf16}",
                "int8, weights bf16": "{gradients: int8, parts: 2, weights: bf16}"}
MBIT, DELAY_SECONDS = 100, 0.001
EPOCHS = 4


def lines(value):
    return f"  compression: {value}\n" if value else ""


def accuracy(folder, number, value):
    train = (f"  epochs: {EPOCHS}\n  batch: 128\n  microbatches: 4\n  seed: 1\n  optimizer: {{lr: 0.05, momentum: 0.9}}\n"
             f"  schedule: {{name: cosine, warmup_steps: 50}}\n{lines(value)}")
    data = "  eval: {format: idx, images: t10k-images-idx3-ubyte.gz, labels: t10k-labels-idx1-ubyte.gz}\n"
    spec, metrics = folder.spec(folder.file("lenet.onnx"), train=train, data=data), folder.file(f"accuracy-{number}.jsonl")
    weir("train", spec, "--workers", 1, "--threads", 2, "--out", folder.file(f"accuracy-{number}"), "--metrics", metrics)
    return read_metrics(metrics)[-1]["accuracy"]


def main():
    link = modes.Link(MBIT, DELAY_SECONDS)
    with Folder() as folder:
        folder.model("mlp", "--hidden", "1024", "--seed", "1")
        folder.model("lenet", "--seed", "1")
        print(f"compression: two workers behind a link of {MBIT} Mbit/s: samples/s, MB a step of gradients and of weights; accuracy of "
              f"LeNet on Fashion-MNIST after {EPOCHS} epochs; none again as the control")
        base = None
        for number, (name, value) in enumerate([*COMPRESSIONS.items(), ("none", "")]):
            rate, gradients, weights = modes.over_link(folder, f"compression-{number}", lines(value), link)
            base = base or (rate, gradients, weights)
            found = accuracy(folder, number, value) if number < len(COMPRESSIONS) else None
            print(f"  {name:20} {rate:7.0f} ({rate / base[0]:.2f} times none's)  {gradients / 1e6:6.3f} ({gradients / base[1]:.4f})  "
                  f"{weights / 1e6:6.3f} ({weights / base[2]:.4f})  " + (f"{found:.2%}" if found else "control"), flush=True)
