#!/usr/bin/env python3
"""A worker that computes the LeNet of `weir model lenet --batch-norm` with PyTorch, for runs with train.deterministic false:

    pip install './examples/python[torch]'
    python examples/python/lenet_worker.py --coordinator HOST:7070 --tls certs/worker --data-root /

Ctrl-C: it leaves, and others compute what it was to compute."""
import argparse
import os
import signal

import torch
from torch import nn
from weir.torch_program import TorchProgram
from weir.worker import Worker


class LeNet(nn.Module):
    """Its tensors have the names of the ONNX file, so no map of names is needed."""

    def __init__(self, batch_norm: bool = True):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.bn1, self.bn2 = (nn.BatchNorm2d(6), nn.BatchNorm2d(16)) if batch_norm else (nn.Identity(), nn.Identity())
        self.fc1, self.fc2, self.head = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 2)
        x = nn.functional.max_pool2d(self.bn2(self.conv2(x)).relu(), 2)
        return self.head(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinator", default=os.environ.get("WEIR_COORDINATOR", "127.0.0.1:7070"))
    parser.add_argument("--tls", default=os.environ.get("WEIR_TLS"))
    parser.add_argument("--data-root", default="/")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--no-batch-norm", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    program = TorchProgram(LeNet(not options.no_batch_norm), device=options.device, data_root=options.data_root)
    worker = Worker(options.coordinator, program, tls=options.tls, device=f"torch-{options.device}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *unused: worker.stop())
    worker.run()
    print(f"computed {worker.computed} microbatches")


if __name__ == "__main__":
    main()
