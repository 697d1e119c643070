"""PyTorch's DistributedDataParallel over gloo, in two processes of one thread: a model of ddp.py, in each of its forms. Run by
ddp.py in the environment that `make parity` makes; argument: the model's name. Reads lines "FORM STEPS" and answers each with
the median seconds of a step, of STEPS after some that do not count, and the CPU seconds of both processes a step. Both live on
between lines and wait for the next one."""
import os
import statistics
import sys
import tempfile
import time

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parity"))
import torch  # noqa: E402
import torch.distributed  # noqa: E402
import torch.multiprocessing  # noqa: E402
from torch import nn  # noqa: E402
from torchvision.models import resnet  # noqa: E402

import zoo  # noqa: E402

PROCESSES, WARM_UP = 2, 3
# form: whether it is compiled, whether it computes under autocast to bf16
FORMS = {"eager": (False, False), "compiled": (True, False), "bf16 eager": (False, True), "bf16 compiled": (True, True)}


def demo():
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1600, 128), nn.ReLU(), nn.Linear(128, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 10))


def resnet18():
    return zoo.narrow_resnet(resnet.BasicBlock, [2, 2, 2, 2], 64, 10, True)


# the module, the shape of a sample, the global batch
MODELS = {"demo": (demo, (1, 28, 28), 128), "mlp": (mlp, (1, 28, 28), 128), "resnet18": (resnet18, (3, 32, 32), 64)}


class Trainer:
    """A model in one form, in this process. DDP as it is fastest: gradients lie in its buckets, the graph is static."""

    def __init__(self, name, form):
        build, shape, batch = MODELS[name]
        is_compiled, self.is_bf16 = FORMS[form]
        torch.manual_seed(0)
        module = nn.parallel.DistributedDataParallel(build().train(), gradient_as_bucket_view=True,
                                                     static_graph=not is_compiled)  # which compiled ones do not take
        self.optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, fused=True)
        self.module = torch.compile(module) if is_compiled else module
        self.x = torch.randn(batch // PROCESSES, *shape)
        self.labels = torch.randint(0, 10, (batch // PROCESSES,))

    def step(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.is_bf16):
            scores = self.module(self.x)
        loss = nn.functional.cross_entropy(scores.float(), self.labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def measure(self, steps):
        """(median seconds of a step, CPU seconds of this process a step)"""
        times = []
        for number in range(-WARM_UP, steps):
            if number == 0:
                cpu = time.process_time()
            began = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - began)
        return statistics.median(times[WARM_UP:]), (time.process_time() - cpu) / steps


def work(rank, name, rendezvous, orders, answers):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=PROCESSES)
    trainers = {}
    for form, steps in iter(orders[rank].get, None):
        if form not in trainers:
            trainers[form] = Trainer(name, form)
        answers.put(trainers[form].measure(steps))
    torch.distributed.destroy_process_group()


def main():
    context = torch.multiprocessing.get_context("spawn")
    orders, answers = [context.Queue() for _ in range(PROCESSES)], context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        running = torch.multiprocessing.spawn(work, (sys.argv[1], os.path.join(folder, "rendezvous"), orders, answers),
                                              nprocs=PROCESSES, join=False)
        for line in sys.stdin:
            form, steps = line.rsplit(None, 1)
            for queue in orders:
                queue.put((form, int(steps)))
            took = [answers.get() for _ in range(PROCESSES)]
            print(max(seconds for seconds, _ in took), sum(cpu for _, cpu in took), flush=True)
        for queue in orders:
            queue.put(None)
        running.join()


if __name__ == "__main__":
    main()
