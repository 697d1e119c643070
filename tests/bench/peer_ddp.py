"""PyTorch's DistributedDataParallel over gloo on the demo's model: as many processes of one thread as asked for, the
same global batch. Prints samples per second. Argument: the number of processes."""
import os
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

BATCH, WARM_UP, STEPS = 128, 5, 60


def network():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def work(rank, processes, rendezvous):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=processes)
    model = nn.parallel.DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.0005)
    x, labels = torch.randn(BATCH // processes, 1, 28, 28), torch.randint(0, 10, (BATCH // processes,))
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            began = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(STEPS * BATCH / (time.perf_counter() - began))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    count = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (count, os.path.join(folder, "rendezvous")), nprocs=count)
