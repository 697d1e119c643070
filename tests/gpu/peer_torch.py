"""PyTorch's side of `make gpu-bench`: steps of the same model under autocast to bf16, with SGD and momentum, batches
copied from pinned memory. Prints a JSON object a line: what the device can do, then of each model both forms.
usage: peer_torch.py STEPS [MODEL=BATCH...]"""
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "parity"))

WARM_UP = 20
STEPS_OF_A_ROUND = 10  # that follow each other without waiting, as training does


def seconds_of(work, rounds):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def limits():
    """What this device's products and copies reach."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    source = torch.empty(1 << 30, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    seconds_of(lambda: a @ b, 5)
    return {"device": torch.cuda.get_device_name(), "flops": 2 * n ** 3 / seconds_of(lambda: a @ b, 20),
            "bytes": 2 * source.numel() / seconds_of(lambda: target.copy_(source), 20)}


class Languages(torch.nn.Module):
    """tests/parity's GPT-2 in its published size; positions are on the device."""

    def __init__(self):
        super().__init__()
        import models
        self.net = models.GPT(50257, 1024, 768, 12, 12)
        self.register_buffer("positions", torch.arange(1024))

    def forward(self, tokens):
        net = self.net
        x = net.tokens(tokens) + net.places(self.positions)
        return net.head(net.norm(net.blocks(x))).flatten(0, 1)


def build(name):
    """(module, shape of a sample or None for tokens, is channels-last)"""
    if name == "gpt2":
        return Languages(), None, False
    import torchvision.models as tv
    if name == "resnet50":
        return tv.resnet50(), (3, 224, 224), True
    if name == "mobilenet_v2":
        return tv.mobilenet_v2(dropout=0.0), (3, 112, 112), True
    return tv.VisionTransformer(224, 16, 12, 6, 384, 1536), (3, 224, 224), False


def step_seconds(name, batch, steps, mode):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    module, shape, is_channels_last = build(name)
    module = module.cuda().train()
    if is_channels_last:
        module = module.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.01, momentum=0.9, fused=True)
    torch.compiler.reset()
    run = torch.compile(module) if mode == "compile" else module
    if shape:
        inputs = torch.rand(batch, *shape).pin_memory()
        labels = torch.randint(0, 1000, (batch,)).pin_memory()
    else:
        inputs = torch.randint(0, 32768, (batch, 1024)).pin_memory()
        labels = torch.randint(0, 32768, (batch * 1024,)).pin_memory()

    def step():
        x, y = inputs.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        if is_channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    def steps_of_a_round():
        for _ in range(STEPS_OF_A_ROUND):
            step()

    for _ in range(WARM_UP):
        step()
    return seconds_of(steps_of_a_round, steps // STEPS_OF_A_ROUND) / STEPS_OF_A_ROUND


def main():
    print(json.dumps(limits()), flush=True)
    for model in sys.argv[2:]:
        name, batch = model.split("=")
        for mode in "eager", "compile":
            try:
                said = {"seconds": step_seconds(name, int(batch), int(sys.argv[1]), mode)}
            except Exception as error:  # pylint: disable=broad-except
                said = {"error": str(error).strip().split("\n", maxsplit=1)[0]}
            print(json.dumps({"model": name, "mode": mode, **said}), flush=True)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
