"""Operators of ONNX (opset 7 and later) as PyTorch computes them. Each is a function of the module, the node and its inputs."""
from __future__ import annotations

import operator
from typing import Any, Callable, Optional, Sequence

import torch
from torch.nn import functional

from . import onnx_file

Op = Callable[[Any, Any, list], Any]
TORCH_DTYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float32, 11: torch.float32, 16: torch.float32}
PADS = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def attribute(node: Any, name: str, default: Any = None) -> Any:
    for found in node.attribute:
        if found.name == name:
            if isinstance(default, str):
                return found.s.decode()
            if isinstance(default, float):
                return found.f
            return list(found.ints) if found.ints or isinstance(default, (list, tuple)) else found.i
    return default


def integers(node: Any, inputs: list, at: int, name: str, default: Any = None) -> Any:
    """What newer opsets have as an input, and older ones as an attribute."""
    if len(inputs) > at and inputs[at] is not None:
        return [int(value) for value in inputs[at].reshape(-1)]
    return attribute(node, name, [] if default is None else default) or default


def padded(node: Any, x: torch.Tensor, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], fill: float) -> torch.Tensor:
    """x with the edge that the node's pads or auto_pad ask for."""
    n, kind = len(kernel), attribute(node, "auto_pad", "NOTSET")
    pads = attribute(node, "pads", [0] * (2 * n)) or [0] * (2 * n)
    if kind.startswith("SAME"):
        spans = [max(0, (-(-size // step) - 1) * step + (width - 1) * dilation + 1 - size)
                 for size, width, step, dilation in zip(x.shape[2:], kernel, strides, dilations)]
        ends = [(span // 2, span - span // 2) if kind == "SAME_UPPER" else (span - span // 2, span // 2) for span in spans]
        pads = [begin for begin, _ in ends] + [end for _, end in ends]
    if not any(pads):
        return x
    return functional.pad(x, [pad for axis in reversed(range(n)) for pad in (pads[axis], pads[axis + n])], value=fill)


def windows(node: Any, n: int) -> tuple[list[int], list[int]]:
    return attribute(node, "strides", [1] * n) or [1] * n, attribute(node, "dilations", [1] * n) or [1] * n


def conv(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, weight, bias = (inputs + [None])[:3]
    n = weight.dim() - 2
    strides, dilations = windows(node, n)
    compute = (functional.conv1d, functional.conv2d, functional.conv3d)[n - 1]
    x = padded(node, x, weight.shape[2:], strides, dilations, 0.0)
    return compute(x, weight, bias, strides, 0, dilations, attribute(node, "group", 1))


def max_pool(module: Any, node: Any, inputs: list) -> torch.Tensor:
    kernel = attribute(node, "kernel_shape", [])
    strides, dilations = windows(node, len(kernel))
    compute = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(kernel) - 1]
    x = padded(node, inputs[0], kernel, strides, dilations, float("-inf"))
    return compute(x, kernel, strides, 0, dilations, bool(attribute(node, "ceil_mode", 0)))


def average_pool(module: Any, node: Any, inputs: list) -> torch.Tensor:
    kernel, x = attribute(node, "kernel_shape", []), inputs[0]
    strides, dilations = windows(node, len(kernel))
    compute = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(kernel) - 1]
    mean = compute(padded(node, x, kernel, strides, dilations, 0.0), kernel, strides, 0, bool(attribute(node, "ceil_mode", 0)))
    if attribute(node, "count_include_pad", 0):
        return mean
    share = compute(padded(node, torch.ones_like(x[:1, :1]), kernel, strides, dilations, 0.0), kernel, strides, 0,
                    bool(attribute(node, "ceil_mode", 0)))
    return mean / share


def batch_norm(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, scale, bias, mean, variance = inputs
    trains = module.training and module.is_statistic(node.input[3])
    if trains:
        module.keep((node.input[3], node.input[4]), x)
    return functional.batch_norm(x, None if trains else mean, None if trains else variance, scale, bias, trains, 0.0,
                                 attribute(node, "epsilon", 1e-5))


def gemm(module: Any, node: Any, inputs: list) -> torch.Tensor:
    a, b, c = (inputs + [None])[:3]
    a, b = a.t() if attribute(node, "transA", 0) else a, b.t() if attribute(node, "transB", 0) else b
    product = attribute(node, "alpha", 1.0) * (a @ b)
    return product if c is None else product + attribute(node, "beta", 1.0) * c


def reshape(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, shape = inputs[0], integers(node, inputs, 1, "shape")
    keeps_zero = attribute(node, "allowzero", 0)
    return x.reshape([x.shape[axis] if size == 0 and not keeps_zero else size for axis, size in enumerate(shape)])


def squeeze(module: Any, node: Any, inputs: list) -> torch.Tensor:
    axes = integers(node, inputs, 1, "axes")
    return inputs[0].squeeze(tuple(axes)) if axes else inputs[0].squeeze()


def unsqueeze(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, axes = inputs[0], integers(node, inputs, 1, "axes")
    for axis in sorted(axis + x.dim() + len(axes) if axis < 0 else axis for axis in axes):
        x = x.unsqueeze(axis)
    return x


def slice_of(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x = inputs[0]
    starts, ends = integers(node, inputs, 1, "starts"), integers(node, inputs, 2, "ends")
    axes = integers(node, inputs, 3, "axes") or list(range(len(starts)))
    steps = integers(node, inputs, 4, "steps") or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps):
        at = range(x.shape[axis])[slice(start, None if step < 0 and end < -x.shape[axis] else end, step)]
        x = x.index_select(axis, torch.tensor(list(at), dtype=torch.int64, device=x.device))
    return x


def split(module: Any, node: Any, inputs: list) -> tuple:
    x, axis, n = inputs[0], attribute(node, "axis", 0), len(node.output)
    sizes = integers(node, inputs, 1, "split")
    if not sizes:
        size = -(-x.shape[axis] // n)
        sizes = [size] * (n - 1) + [x.shape[axis] - size * (n - 1)]
    return tuple(x.split(sizes, axis))


def gather(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, indices = inputs
    axis = attribute(node, "axis", 0) % x.dim()
    indices = torch.where(indices < 0, indices + x.shape[axis], indices)
    taken = x.index_select(axis, indices.reshape(-1))
    return taken.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])


def flatten(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, axis = inputs[0], attribute(node, "axis", 1)
    return x.reshape(int(torch.tensor(x.shape[:axis]).prod()) if axis else 1, -1)


def layer_norm(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, scale, bias = (inputs + [None])[:3]
    return functional.layer_norm(x, x.shape[attribute(node, "axis", -1):], scale, bias, attribute(node, "epsilon", 1e-5))


def constant(module: Any, node: Any, inputs: list) -> torch.Tensor:
    made, device = node.attribute[0], module.tensor0.device if hasattr(module, "tensor0") else None
    if made.name == "value":
        return torch.from_numpy(onnx_file.values(made.t, lambda key: b"").copy()).to(device)
    value = {"value_float": made.f, "value_int": made.i, "value_floats": list(made.floats), "value_ints": list(made.ints)}[made.name]
    return torch.tensor(value, device=device)


def softmax(compute: Callable) -> Op:
    def of(module: Any, node: Any, inputs: list) -> torch.Tensor:
        x = inputs[0]
        if module.opset >= 13:
            return compute(x, attribute(node, "axis", -1))
        axis = attribute(node, "axis", 1) % x.dim()  # of the older ones: over all that follows
        return compute(x.flatten(axis), -1).reshape(x.shape)
    return of


def reduce(compute: Callable) -> Op:
    def of(module: Any, node: Any, inputs: list) -> torch.Tensor:
        x, axes = inputs[0], integers(node, inputs, 1, "axes")
        if not axes and attribute(node, "noop_with_empty_axes", 0):
            return x
        return compute(x, tuple(axes) if axes else tuple(range(x.dim())), keepdim=bool(attribute(node, "keepdims", 1)))
    return of


def clip(module: Any, node: Any, inputs: list) -> torch.Tensor:
    low, high = ((inputs + [None, None])[1:3] if module.opset >= 11 else
                 (attribute(node, "min", float("-inf")), attribute(node, "max", float("inf"))))
    return torch.clamp(inputs[0], low, high)


def pad(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x, pads, mode = inputs[0], integers(node, inputs, 1, "pads"), PADS[attribute(node, "mode", "constant")]
    n, value = x.dim(), float(inputs[2]) if len(inputs) > 2 and inputs[2] is not None else attribute(node, "value", 0.0)
    widths = [width for axis in reversed(range(n)) for width in (pads[axis], pads[axis + n])]
    if mode == "constant":
        return functional.pad(x, widths, value=value)
    return functional.pad(x, widths[:2 * (n - 2)], mode=mode)


def dropout(module: Any, node: Any, inputs: list) -> torch.Tensor:
    ratio = float(inputs[1]) if len(inputs) > 1 and inputs[1] is not None else attribute(node, "ratio", 0.5)
    return functional.dropout(inputs[0], ratio, module.training)


def gelu(module: Any, node: Any, inputs: list) -> torch.Tensor:
    return functional.gelu(inputs[0], approximate=attribute(node, "approximate", "none"))


def expand(module: Any, node: Any, inputs: list) -> torch.Tensor:
    shape = [int(size) for size in inputs[1]]
    return inputs[0].expand(torch.broadcast_shapes(inputs[0].shape, shape))


def shape_of(module: Any, node: Any, inputs: list) -> torch.Tensor:
    x = inputs[0]
    return torch.tensor(x.shape[attribute(node, "start", 0):attribute(node, "end", x.dim())], dtype=torch.int64, device=x.device)


def transpose(module: Any, node: Any, inputs: list) -> torch.Tensor:
    return inputs[0].permute(attribute(node, "perm", []) or list(reversed(range(inputs[0].dim()))))


def plain(compute: Callable) -> Op:
    """Of tensors alone."""
    return lambda module, node, inputs: compute(*inputs)


def option(compute: Callable, name: str, default: float, more: Optional[dict] = None) -> Op:
    """Of a tensor and a number."""
    return lambda module, node, inputs: compute(inputs[0], attribute(node, name, default), **(more or {}))


def divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


OPS: dict[str, Op] = {
    "Abs": plain(torch.abs), "Add": plain(operator.add), "AveragePool": average_pool, "BatchNormalization": batch_norm,
    "Cast": lambda module, node, inputs: inputs[0].to(TORCH_DTYPES[attribute(node, "to", 1)]),
    "Clip": clip, "Concat": lambda module, node, inputs: torch.cat(inputs, attribute(node, "axis", 0)), "Constant": constant,
    "Conv": conv, "Cos": plain(torch.cos), "Div": plain(divide), "Dropout": dropout,
    "Elu": option(functional.elu, "alpha", 1.0), "Equal": plain(torch.eq), "Erf": plain(torch.erf), "Exp": plain(torch.exp),
    "Expand": expand, "Flatten": flatten, "Gather": gather, "Gelu": gelu, "Gemm": gemm,
    "GlobalAveragePool": lambda module, node, inputs: inputs[0].mean(tuple(range(2, inputs[0].dim())), keepdim=True),
    "Greater": plain(torch.gt),
    "HardSigmoid": lambda module, node, inputs: torch.clamp(
        attribute(node, "alpha", 0.2) * inputs[0] + attribute(node, "beta", 0.5), 0, 1),
    "HardSwish": plain(functional.hardswish), "Identity": plain(lambda x: x), "LayerNormalization": layer_norm,
    "LeakyRelu": option(functional.leaky_relu, "alpha", 0.01), "Less": plain(torch.lt), "Log": plain(torch.log),
    "LogSoftmax": softmax(torch.log_softmax), "MatMul": plain(torch.matmul), "MaxPool": max_pool, "Mul": plain(operator.mul),
    "Neg": plain(torch.neg), "Not": plain(torch.logical_not), "Pad": pad, "Pow": plain(torch.pow), "Reciprocal": plain(torch.reciprocal),
    "ReduceMean": reduce(torch.mean), "ReduceSum": reduce(torch.sum), "Relu": plain(torch.relu), "Reshape": reshape,
    "Shape": shape_of, "Sigmoid": plain(torch.sigmoid),
    "Sin": plain(torch.sin), "Slice": slice_of, "Softmax": softmax(torch.softmax), "Softplus": plain(functional.softplus),
    "Split": split, "Sqrt": plain(torch.sqrt), "Squeeze": squeeze, "Sub": plain(operator.sub), "Tanh": plain(torch.tanh),
    "Transpose": transpose, "Unsqueeze": unsqueeze, "Where": plain(torch.where),
}
