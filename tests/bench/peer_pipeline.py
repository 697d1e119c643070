"""PyTorch's pipelines (torch.distributed.pipelining over gloo): ResNet-50 cut into stages, a process of one thread for
each. Prints JSON: `seconds` of each step, `cpu_seconds` of each stage's thread in each step, `peak_bytes` of each process,
`losses`. Arguments: the schedule (1F1B or GPipe), the cuts by Weir's names, separated by commas, then microbatches, batch,
side of the images, classes, steps."""
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time


def pieces(classes):
    """(name, module, what of the state it computes): the state is (x,), or within a block (x, skip)."""
    from torch import nn

    def conv(inputs, outputs, side, stride):
        layer = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        return layer

    def norm(name, channels, is_active=True):
        yield name, nn.BatchNorm2d(channels), "x"
        if is_active:
            yield name + ".relu", nn.Identity(), "relu"

    def block(name, inputs, width, stride):
        yield name + ".conv1", conv(inputs, width, 1, 1), "fork"
        yield from norm(name + ".bn1", width)
        yield name + ".conv2", conv(width, width, 3, stride), "x"
        yield from norm(name + ".bn2", width)
        yield name + ".conv3", conv(width, 4 * width, 1, 1), "x"
        yield from norm(name + ".bn3", 4 * width, is_active=False)
        if inputs != 4 * width:
            yield name + ".downsample.0", conv(inputs, 4 * width, 1, stride), "skip"
            yield name + ".downsample.1", nn.BatchNorm2d(4 * width), "skip"
        yield name + ".sum", nn.Identity(), "join"
        yield name + ".relu", nn.Identity(), "relu"

    yield "conv1", conv(3, 64, 7, 2), "x"
    yield from norm("bn1", 64)
    yield "maxpool", nn.MaxPool2d(3, 2, 1), "x"
    channels = 64
    for layer, blocks in enumerate((3, 4, 6, 3)):
        for number in range(blocks):
            width = 64 << layer
            yield from block(f"layer{layer + 1}.{number}", channels, width, 2 if layer and not number else 1)
            channels = 4 * width
    yield "avgpool", nn.AdaptiveAvgPool2d(1), "x"
    yield "avgpool.flat", nn.Flatten(), "x"
    yield "fc", nn.Linear(channels, classes), "x"


def make_stage(rank, cuts, classes):
    """The module of one stage; a state of two tensors crosses a cut within a block."""
    from torch import nn
    from torch.nn import functional
    all_pieces = list(pieces(classes))
    starts = [next(at for at, (name, *_) in enumerate(all_pieces) if f"{name}.".startswith(f"{cut}.")) for cut in cuts]
    bounds = [0, *starts, len(all_pieces)]
    mine = all_pieces[bounds[rank]:bounds[rank + 1]]

    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(module for _, module, _ in mine)

        def forward(self, *state):
            for (_, _, role), layer in zip(mine, self.layers):
                x, *skip = state
                is_received = x.is_leaf  # which is not to be changed
                if role == "fork":
                    state = layer(x), x
                elif role == "skip":
                    state = x, layer(*skip)
                elif role == "join":
                    state = (x + skip[0] if is_received else x.add_(*skip),)
                elif role == "relu":
                    state = functional.relu(x, inplace=not is_received), *skip
                else:
                    state = layer(x), *skip
            return state if len(state) > 1 else state[0]

    return Stage()


def one_step(schedule, optimizer, inputs, labels):
    """(seconds, CPU seconds of this thread, the mean loss where it is known)"""
    import torch
    losses = []
    torch.distributed.barrier()
    began, cpu_began = time.perf_counter(), time.thread_time()
    optimizer.zero_grad()
    if labels is None:
        schedule.step(*inputs, return_outputs=False)
    else:
        schedule.step(*inputs, target=labels, losses=losses, return_outputs=False)
    optimizer.step()
    cpu = time.thread_time() - cpu_began
    torch.distributed.barrier()
    return time.perf_counter() - began, cpu, torch.stack(losses).mean().item() if losses else None


def work(rank, arguments, rendezvous, results):
    import torch
    from torch.distributed import pipelining
    name, cuts, microbatches, batch, side, classes, steps = arguments
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # as Weir computes
    torch.manual_seed(1)
    last = len(cuts)
    torch.distributed.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=last + 1)
    module = make_stage(rank, cuts, classes)
    stage = pipelining.PipelineStage(module, rank, last + 1, torch.device("cpu"))
    schedule = {"1F1B": pipelining.Schedule1F1B, "GPipe": pipelining.ScheduleGPipe}[name](
        stage, microbatches, loss_fn=torch.nn.functional.cross_entropy)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.rand(batch, 3, side, side), torch.randint(0, classes, (batch,))
    taken = [one_step(schedule, optimizer, (images,) if rank == 0 else (), labels if rank == last else None)
             for _ in range(steps)]
    results.put((rank, taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))
    torch.distributed.destroy_process_group()


def main():
    name, cuts, *numbers = sys.argv[1:]
    arguments = (name, cuts.split(","), *map(int, numbers))
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        children = [context.Process(target=work, args=(rank, arguments, os.path.join(folder, "rendezvous"), results))
                    for rank in range(len(arguments[1]) + 1)]
        for child in children:
            child.start()
        for child in children:
            child.join()
    if any(child.exitcode for child in children):
        sys.exit(1)
    of_ranks = sorted(results.get() for _ in children)
    print(json.dumps({"seconds": [max(step) for step in zip(*([took for took, *_ in taken] for _, taken, _ in of_ranks))],
                      "cpu_seconds": [[cpu for _, cpu, _ in taken] for _, taken, _ in of_ranks],
                      "peak_bytes": [peak for *_, peak in of_ranks],
                      "losses": [loss for *_, loss in of_ranks[-1][1]]}))


if __name__ == "__main__":
    main()
