#!/usr/bin/env python3
"""A worker that computes each run's own ONNX file with PyTorch, for runs with train.deterministic false:

    pip install './examples/python[torch]'
    python examples/python/onnx_worker.py --coordinator HOST:7070 --tls certs/worker --data-root /

Ctrl-C: it leaves, and others compute what it was to compute."""
import argparse
import os
import signal

import torch
from weir.onnx_program import OnnxProgram
from weir.worker import Worker


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--coordinator", default=os.environ.get("WEIR_COORDINATOR", "127.0.0.1:7070"))
    parser.add_argument("--tls", default=os.environ.get("WEIR_TLS"))
    parser.add_argument("--data-root", default="/")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(1)
    program = OnnxProgram(device=options.device, data_root=options.data_root)
    worker = Worker(options.coordinator, program, tls=options.tls, device=f"torch-{options.device}")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *unused: worker.stop())
    worker.run()
    print(f"computed {worker.computed} microbatches")


if __name__ == "__main__":
    main()
