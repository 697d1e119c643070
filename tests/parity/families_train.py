"""Trains one family by `weir train` and by PyTorch in float32 and float64, from the same weights on the same samples.

How far a result lies from float64: of the weights, the norm of the difference over the norm of what training changed;
of the losses, the greatest relative difference of a step."""
import copy
import itertools
import json
import os
import re
import shutil

import numpy
import onnx
import torch
import torch.nn.functional as F
from safetensors.numpy import load_file

import export
import families_cases
import families_models
import models
import toy
from train_models import Refused, weir

STEPS, BATCH, LR, MOMENTUM, TIMES_MAX = 4, 4, 0.05, 0.9, 10
ULP = 2.0 ** -24  # half of it is what rounding to float32 may change, relatively
FLOOR_ULPS = 4


class Failed(Exception):
    """How it ended: (state, reason)."""


def labels_of(output, samples):
    """Classes lie in the last of three dimensions, else in the second."""
    shape, classes = list(output.shape[1:]), output.shape[-1] if output.dim() == 3 else output.shape[1]
    shape.remove(classes) if output.dim() != 3 else shape.pop()
    return toy.whole("labels", classes, samples, *shape)


def loss_of(output, labels):
    return F.cross_entropy(output.transpose(1, 2) if output.dim() == 3 else output, labels)


def train_pytorch(module, columns, dtype, lr):
    """Losses, and what the state is at the end, by name."""
    module = copy.deepcopy(module).to(dtype).train()
    tensors = [torch.tensor(column) for column in columns.values()]
    tensors = [tensor.to(dtype) if tensor.is_floating_point() else tensor for tensor in tensors]
    optimizer, losses = torch.optim.SGD(module.parameters(), lr=lr, momentum=MOMENTUM), []
    for step in range(STEPS):
        *inputs, labels = [tensor[step * BATCH:(step + 1) * BATCH] for tensor in tensors]
        loss = loss_of(module(*inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, state_of(module)


def state_of(module):
    """The parameters. Batch norm's running statistics are left out: the older exporter moves them, and PyTorch's
    variance is n / (n - 1) times ONNX's."""
    return {key: value.detach().double().numpy().copy() for key, value in module.named_parameters()}


def padding_rows(module, state, first):
    """Rows of embeddings that padding_idx kept from being trained, by parameter: {name: row}."""
    rows = {}
    for name, part in module.named_modules():
        key = name + ".weight"
        if getattr(part, "padding_idx", None) is not None and key in first:
            row = part.padding_idx
            if numpy.array_equal(state[key][row], first[key][row]):
                rows[key] = row
    return rows


def write_spec(folder, columns, frozen, lr):
    """Frozen: fields of `model`, by name."""
    inputs = ", ".join(f"{column}: {column}" for column in list(columns)[:-1])
    files = ", ".join(f"{column}: {column}.npy" for column in columns)
    fields = "".join(f", {key}: {json.dumps(value)}" for key, value in frozen.items())
    with open(os.path.join(folder, "spec.yaml"), "w") as file:
        file.write(f"""name: family
model: {{onnx: model.onnx, loss: cross_entropy, inputs: {{{inputs}}}{fields}}}
data: {{root: {folder}, shuffle: false, train: {{format: npy, columns: {{{files}}}}}}}
train: {{steps: {STEPS}, batch: {BATCH}, optimizer: {{lr: {lr}, momentum: {MOMENTUM}}}}}
""")
    return file.name


def train_weir(program, folder, columns, frozen, lr):
    """Losses, and the tensors at the end, by the names of initializers."""
    for name, data in columns.items():
        numpy.save(os.path.join(folder, name), data)
    out = os.path.join(folder, "out")
    shutil.rmtree(out, ignore_errors=True)
    weir(program, "inspect", os.path.join(folder, "model.onnx"), "--batch", BATCH)
    weir(program, "train", write_spec(folder, columns, frozen, lr), "--workers", 1, "--threads", 1, "--out", out)
    with open(os.path.join(out, "metrics.jsonl")) as file:
        losses = [event["loss"] for event in map(json.loads, file) if event["event"] == "step"]
    return losses, load_file(os.path.join(out, "model.safetensors"))


def places(state):
    """By content: which tensor it is, and the permutation of its axes that an exporter stored."""
    found = {}
    for key, value in state.items():
        for axes in itertools.permutations(range(value.ndim)) if value.ndim <= 4 else [tuple(range(value.ndim))]:
            stored = value.astype(numpy.float32).transpose(axes)
            found.setdefault((stored.shape, stored.tobytes()), (key, axes))
    return found


def frozen_of(path, module, first, rows):
    """What of the file is not to be trained: those rows, parameters that want no gradient (positions), and buffers,
    which the older exporter writes like parameters."""
    known = places(first)
    still = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    buffers = {name for name, buffer in module.named_buffers() if buffer.is_floating_point() and
               not re.search(r"running_(mean|var)$", name)}
    found = {"frozen": [], "frozen_rows": {}}
    for tensor in onnx.load(path).graph.initializer:
        data = onnx.numpy_helper.to_array(tensor)
        key, axes = known.get((data.shape, data.tobytes()), (None, ()))
        if key in rows and list(axes) == sorted(axes):
            found["frozen_rows"][tensor.name] = [rows[key]]
        if key in still or tensor.name in buffers:
            found["frozen"].append(tensor.name)
    return {field: value for field, value in found.items() if value}


def draws_numbers(path):
    return any(node.op_type.startswith("Random") or node.op_type == "Bernoulli"
               for node in onnx.load(path, load_external_data=False).graph.node)


def match(path, ours, first):
    """Our tensors by PyTorch's names, and the initializers that were trained and are none of PyTorch's."""
    known, matched, strange = places(first), {}, []
    for tensor in onnx.load(path).graph.initializer:
        if tensor.name not in ours:
            continue
        data = onnx.numpy_helper.to_array(tensor)
        place = known.get((data.shape, data.tobytes()))
        if place:
            matched[place[0]] = ours[tensor.name].transpose(numpy.argsort(place[1]))
        elif not numpy.array_equal(data, ours[tensor.name]) and not re.search(r"running_(mean|var)$", tensor.name):
            strange.append(tensor.name)
    return matched, strange


def distance(state, exact, first, names):
    """Of the weights: see above."""
    off = sum(numpy.sum((state[name] - exact[name]) ** 2) for name in names)
    moved = sum(numpy.sum((exact[name] - first[name]) ** 2) for name in names)
    return float(numpy.sqrt(off / moved))


def floor_of(exact, first, names):
    """What some roundings of the weights come to."""
    size = sum(numpy.sum(exact[name] ** 2) for name in names)
    moved = sum(numpy.sum((exact[name] - first[name]) ** 2) for name in names)
    return float(ULP * numpy.sqrt(size / moved))


def loss_distance(losses, exact):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, exact))


def compare(path, ours, single, double, first):
    """The distances of ours and PyTorch's, and how many times ours is PyTorch's."""
    (our_losses, our_tensors), (losses, state), (exact_losses, exact) = ours, single, double
    matched, strange = match(path, our_tensors, first)
    moved = [name for name in exact if not numpy.array_equal(exact[name], first[name])]
    # A bias before batch norm has no gradient but rounding: float64's is nothing beside the others.
    size = numpy.sqrt(sum(numpy.sum((exact[name] - first[name]) ** 2) for name in moved))
    lost = [name for name in moved if name not in matched and
            numpy.linalg.norm(exact[name] - first[name]) > 1e-6 * size]
    names = [name for name in moved if name in matched]
    strange += [name for name in matched if name not in moved and
                numpy.linalg.norm(matched[name] - first[name]) > 1e-6 * size]
    if lost or strange:
        raise Failed("differs", f"not trained: {', '.join(lost[:3])}" if lost else f"trained: {', '.join(strange[:3])}")
    weights = (distance(matched, exact, first, names), distance(state, exact, first, names))
    loss = (loss_distance(our_losses, exact_losses), loss_distance(losses, exact_losses))
    times = max(weights[0] / max(weights[1], floor_of(exact, first, names)), loss[0] / max(loss[1], FLOOR_ULPS * ULP))
    return {"weights": weights, "losses": loss, "times": times}


def reason_of(error):
    """The line of an exporter's error that says why."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = re.compile(r"(<class|[A-Z]\w*(Error|Exception|Operator)\b|Unsupported|\[?torch|Could not)")
    causes = [line for line in lines if cause.match(line) and "TorchExportError" not in line]
    line = (causes or lines or [type(error).__name__])[-1 if causes else 0]
    return re.sub(r"<class '([\w.]*\.)?(\w+)'>", r"\2", line)[:200]


def try_export(case, path, exporter, module):
    """With an open batch, or else a fixed one; which."""
    reasons = []
    for batch in export.BATCHES:
        try:
            export.export(case, path, exporter, batch, BATCH, copy.deepcopy(module))
            return batch
        except Exception as error:  # whatever an exporter raises
            reasons.append(reason_of(error))
    raise Failed("exporter", reasons[-1])


def try_family(program, folder, family, exporter):
    """What happened, as a dictionary. Family: (library, kind, name, row). One that lies far from float64 is tried on other
    samples, too: a kink, such as two elements of a pool's window within a rounding of each other, shows on some samples,
    a wrong gradient on all."""
    result = try_samples(program, folder, family, exporter, 0)
    if result["state"] != "far":
        return result
    again = try_samples(program, folder, family, exporter, STEPS * BATCH)
    return dict(again, samples="second") if again["state"] == "trains" else result


def try_samples(program, folder, family, exporter, begin):
    """Training on the samples from `begin` on."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    result = {"library": family[0], "kind": family[1], "family": family[2], "exporter": exporter}
    path, lr = os.path.join(folder, "model.onnx"), families_cases.RATES.get(family[2], LR)
    try:
        try:
            module, inputs = families_models.build(*family)
            columns = {key: column[begin:] for key, column in inputs(begin + STEPS * BATCH).items()}
            output = copy.deepcopy(module)(*[torch.tensor(column[:BATCH]) for column in columns.values()])
            columns["labels"] = labels_of(output, STEPS * BATCH)
            single, double = [train_pytorch(module, columns, dtype, lr) for dtype in (torch.float32, torch.float64)]
            if not numpy.isfinite(double[0]).all():
                raise Failed("pytorch", "its losses in float64 are not finite")
        except Failed:
            raise
        except Exception as error:
            line = str(error).splitlines()[0] if str(error) else ""
            raise Failed("pytorch", f"{type(error).__name__}: {line}"[:200]) from error
        case = models.Case(None, lambda samples: {key: value[:samples] for key, value in columns.items()})
        result["parameters"] = sum(parameter.numel() for parameter in module.parameters())
        result["batch"] = try_export(case, path, exporter, module)
        first = state_of(module)
        frozen = frozen_of(path, module, first, padding_rows(module, double[1], first))
        try:
            ours = train_weir(program, folder, columns, frozen, lr)
        except Refused as refusal:
            raise Failed("weir", str(refusal).replace(folder + "/", "")) from refusal
        if draws_numbers(path):
            raise Failed("random", "its training draws random numbers, so that steps cannot be compared")
        result |= compare(path, ours, single, double, first)
        result["state"] = "trains" if result["times"] <= TIMES_MAX else "far"
        if family[2] in families_cases.OWN_GRADIENT:
            raise Failed("gradient", "its backward is written by hand and is not the derivative of its forward")
    except Failed as failure:
        result["state"], result["reason"] = failure.args
    return result
