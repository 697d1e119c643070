#!/usr/bin/env python3
"""The models that `weir model` writes, beside the modules that they are of:

    python tests/parity/zoo.py build/weir            # compares
    python tests/parity/zoo.py build/weir --golden   # writes zoo.json, for tests/integration/test_models.py

Compared are the standard sizes: the file's tensors load into the module, which is as large, and of every tensor mean
and deviation are those that the module initialises its own with. zoo.json has the small models of zoo_cases.py, in
float64: names and shapes of the tensors, outputs in evaluation and the loss of each step of training.
Needs tests/parity/requirements.txt."""
import json
import math
import os
import subprocess
import sys
import tempfile

import onnx
import torch
import torch.nn.functional as F
import torchvision.models as tv
from torch import nn
from torchvision.models import resnet

import zoo_cases

torch.set_flush_denormal(True)  # as Weir computes

HERE = os.path.dirname(os.path.abspath(__file__))


class MLP(nn.Module):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden]
        for i, out in enumerate(hidden):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], out))
        self.count, self.head = len(hidden), nn.Linear(widths[-1], classes)

    def forward(self, x):
        x = x.flatten(1)
        for i in range(self.count):
            x = F.relu(getattr(self, f"fc{i + 1}")(x))
        return self.head(x)


class LeNet(MLP):
    """Of 5x5 convolutions with batch norm; `inputs` of the fully connected layers."""

    def __init__(self, channels, inputs, hidden, classes):
        super().__init__(inputs, hidden, classes)
        self.conv1 = nn.Conv2d(channels[0], channels[1], 5, padding=2)
        self.conv2 = nn.Conv2d(channels[1], channels[2], 5)
        self.bn1, self.bn2 = nn.BatchNorm2d(channels[1]), nn.BatchNorm2d(channels[2])

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        return super().forward(F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2))


def narrow_resnet(block, depth, width, classes, has_small_stem):
    """torchvision's of another width."""
    net = tv.ResNet(block, depth, classes)
    net.inplanes = width
    net.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
    if has_small_stem:
        net.conv1, net.maxpool = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.Identity()
    net.bn1 = nn.BatchNorm2d(width)
    for stage in range(4):
        layer = net._make_layer(block, width * 2**stage, depth[stage], 1 if stage == 0 else 2)
        setattr(net, f"layer{stage + 1}", layer)
    net.fc = nn.Linear(width * 8 * block.expansion, classes)
    return net


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = nn.Module(), nn.Module()
        self.attn.c_attn, self.attn.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp.c_fc, self.mlp.c_proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (part.unflatten(2, (self.heads, -1)).transpose(1, 2)
                   for part in self.attn.c_attn(self.ln_1(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn.c_proj(y.transpose(1, 2).flatten(2))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    """GPT-2 with nanoGPT's names and initial weights."""

    def __init__(self, vocabulary, context, width, depth, heads):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(depth)), "ln_f": nn.LayerNorm(width)})
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deviation = 0.02 / math.sqrt(2 * depth) if name.endswith("c_proj.weight") else 0.02
                nn.init.normal_(parameter, std=deviation)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens):
        x = self.transformer.wte(tokens) + self.transformer.wpe.weight
        for block in self.transformer.h:
            x = block(x)
        return self.transformer.ln_f(x) @ self.transformer.wte.weight.T


class DLRM(nn.Module):
    def __init__(self, dense, tables, width, bottom, top):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.Embedding(rows, width) for rows in tables)
        for table, rows in zip(self.emb_l, tables):
            nn.init.uniform_(table.weight, -math.sqrt(1 / rows), math.sqrt(1 / rows))
        vectors = len(tables) + 1
        self.bot_l = self.mlp([dense, *bottom], nn.ReLU())
        self.top_l = self.mlp([width + vectors * (vectors - 1) // 2, *top, 1], nn.Identity())
        self.rows, self.columns = torch.tril_indices(vectors, vectors, -1)

    @staticmethod
    def mlp(widths, last):
        layers = []
        for into, out in zip(widths, widths[1:]):
            linear = nn.Linear(into, out)
            nn.init.normal_(linear.weight, std=math.sqrt(2 / (into + out)))
            nn.init.normal_(linear.bias, std=math.sqrt(1 / out))
            layers += [linear, nn.ReLU()]
        return nn.Sequential(*layers[:-1], last)

    def forward(self, dense, sparse):
        x = self.bot_l(dense)
        vectors = torch.stack([x] + [table(sparse[:, i]) for i, table in enumerate(self.emb_l)], 1)
        pairs = (vectors @ vectors.transpose(1, 2))[:, self.rows, self.columns]
        return self.top_l(torch.cat([x, pairs], 1)).squeeze(1)


SMALL = {
    "mlp": lambda: MLP(192, [16, 12], 4),
    "lenet": lambda: LeNet([3, 4, 6], 24, [12], 4),
    "resnet18": lambda: narrow_resnet(resnet.BasicBlock, [1, 2, 1, 1], 6, 4, True),
    "resnet50": lambda: narrow_resnet(resnet.Bottleneck, [1, 1, 1, 1], 8, 4, False),
    "mobilenet_v2": lambda: tv.MobileNetV2(4, 0.5, dropout=0.0),
    "vit": lambda: tv.VisionTransformer(16, 4, 2, 2, 16, 32, num_classes=4),
    "gpt": lambda: GPT(40, 10, 16, 2, 2),
    "dlrm": lambda: DLRM(5, [50, 30, 20], 4, [8, 4], [6]),
}
# Of the sizes that `weir model` writes unless told otherwise.
STANDARD = {
    "resnet18": tv.resnet18, "resnet50": tv.resnet50, "mobilenet_v2": tv.mobilenet_v2, "vit": tv.vit_b_16,
    "gpt": lambda: GPT(50257, 1024, 768, 12, 12),
    "dlrm": lambda: DLRM(13, [1000] * 26, 16, [512, 256, 64, 16], [512, 256]),
}


def tensors_of(module):
    return {name: tensor for name, tensor in module.state_dict().items() if not name.endswith("num_batches_tracked")}


def load_filled(kind):
    module = SMALL[kind]()
    values = {name: torch.tensor(zoo_cases.value(name, tensor.shape)) for name, tensor in tensors_of(module).items()}
    module.load_state_dict(values)
    return module.double()


def train(module, columns, loss, lr):
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=lr, momentum=0.9), []
    for first in range(0, zoo_cases.STEPS * zoo_cases.BATCH, zoo_cases.BATCH):
        *inputs, labels = (column[first:first + zoo_cases.BATCH] for column in columns)
        output = module.train()(*inputs)
        if output.dim() == 3:
            output = output.transpose(1, 2)
        value = {"cross_entropy": F.cross_entropy, "bce_with_logits": F.binary_cross_entropy_with_logits}[loss](
            output, labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def make_golden():
    golden = {}
    for kind, (_, _, _, loss, lr, _) in zoo_cases.CASES.items():
        columns = [torch.tensor(column) for column in zoo_cases.columns_of(kind).values()]
        columns = [column.double() if column.is_floating_point() else column for column in columns]
        module = load_filled(kind)
        with torch.no_grad():
            outputs = module.eval()(*(column[:zoo_cases.EVAL_SAMPLES] for column in columns[:-1]))
        golden[kind] = {"tensors": {name: list(tensor.shape) for name, tensor in tensors_of(module).items()},
                        "outputs": outputs.flatten().tolist(), "losses": train(module, columns, loss, lr)}
    with open(os.path.join(HERE, "zoo.json"), "w") as file:
        lines = ",\n".join(f'  "{kind}": {json.dumps(case)}' for kind, case in golden.items())
        file.write(f'{{"torch": "{torch.__version__}", "kinds": {{\n{lines}\n}}}}\n')


def read_tensors(weir, kind):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        subprocess.run([weir, "model", kind, "-o", path], check=True, stdout=subprocess.DEVNULL)
        onnx.checker.check_model(path, full_check=True)
        return {tensor.name: torch.tensor(onnx.numpy_helper.to_array(tensor))
                for tensor in onnx.load(path).graph.initializer}


def differs(ours, theirs):
    """Whether mean or deviation is further away than two samples of one distribution are. Of one number,
    nobody knows."""
    count, deviation = ours.numel(), theirs.std(correction=0).item()
    if count == 1:
        return False
    near_mean = abs(ours.mean() - theirs.mean()) <= 6 * deviation * math.sqrt(2 / count) + 1e-12
    return not near_mean or abs(ours.std(correction=0) - deviation) > 6 * deviation / math.sqrt(count)


def compare(weir, kind):
    """Prints a line; whether all is alike."""
    module, ours = STANDARD[kind](), read_tensors(weir, kind)
    theirs = {name: tensor.clone() for name, tensor in tensors_of(module).items()}
    wrong = [name for name in theirs if name in ours and differs(ours[name], theirs[name])]
    module.load_state_dict(ours)
    size = sum(parameter.numel() for parameter in module.parameters())
    print(f"{kind:<13} {size:>11,} parameters  {len(ours):>4} tensors loaded, "
          f"{'initially alike' if not wrong else 'initially different: ' + ', '.join(wrong)}", flush=True)
    return not wrong


def main():
    torch.manual_seed(1)
    if sys.argv[2:] == ["--golden"]:
        make_golden()
    else:
        sys.exit(not all([compare(sys.argv[1], kind) for kind in STANDARD]))


if __name__ == "__main__":
    main()
