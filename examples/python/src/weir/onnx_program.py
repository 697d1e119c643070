"""A program for workers that computes the run's own ONNX file with PyTorch."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import numpy as np
import torch

from . import onnx_file
from .onnx_ops import OPS
from .pb import training_pb2
from .torch_program import TorchProgram
from .worker import Program, Refused, Result

DOMAINS = ("", "ai.onnx")


class OnnxModule(torch.nn.Module):
    """The graph of an ONNX file, node after node. Its tensors that the run trains are parameters, its running statistics buffers;
    `names` has their names in the file."""

    def __init__(self, model: Any, layout: training_pb2.Layout, piece: Callable[[str], bytes]):
        super().__init__()
        graph, kinds = model.graph, {tensor.name: tensor.is_statistic for tensor in layout.tensors}
        self.opset = next((opset.version for opset in model.opset_import if opset.domain in DOMAINS), 1)
        self.nodes, self.output = list(graph.node), graph.output[0].name
        self.names: dict[str, str] = {}
        self.statistics: dict[str, np.ndarray] = {}
        own = {}
        for number, tensor in enumerate(graph.initializer):
            own[tensor.name] = name = f"tensor{number}"
            if tensor.name not in kinds:
                self.register_buffer(name, torch.from_numpy(onnx_file.values(tensor, piece).copy()), persistent=False)
                continue
            self.names[name], value = tensor.name, torch.zeros(tuple(tensor.dims))  # servers have what it is
            if kinds[tensor.name]:
                self.register_buffer(name, value)
            else:
                self.register_parameter(name, torch.nn.Parameter(value))
        self._own = own
        inputs = [value.name for value in graph.input if value.name not in own]
        if len(inputs) != 1 or len(graph.output) != 1:
            raise Refused(f"the model has {len(inputs)} inputs and {len(graph.output)} outputs: this program computes those of one each")
        self.input = inputs[0]

    def keep(self, names: tuple[str, str], x: torch.Tensor) -> None:
        """Batch norm's statistics of a microbatch, by the names of the running ones."""
        over = [0, *range(2, x.dim())]
        for name, value in zip(names, (x.mean(over), x.var(over, unbiased=False))):
            self.statistics[name] = value.detach().cpu().numpy()

    def is_statistic(self, name: str) -> bool:
        return name in self._own and self._own[name] in self.names

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {name: getattr(self, own) for name, own in self._own.items()}
        values[""], values[self.input] = None, x
        for node in self.nodes:
            made = OPS[node.op_type](self, node, [values[name] for name in node.input])
            for name, value in zip(node.output, made if isinstance(made, tuple) else (made,)):
                values[name] = value
        return values[self.output]


class OnnxProgram(Program):
    """Computes runs whose models have the operators of onnx_ops.py, one input and one output of scores. The rest is as with
    TorchProgram."""

    wants_file = True

    def __init__(self, device: str = "cpu", data_root: str = "/", data: Optional[Callable[[Any, Any], Any]] = None):
        self._options = {"device": device, "data_root": data_root, "data": data}

    def read(self, file: bytes, piece: Callable[[str], bytes]) -> None:
        self._model, self._piece = onnx_file.parse(file), piece
        strange = sorted({f"{node.domain}.{node.op_type}" if node.domain not in DOMAINS else node.op_type
                          for node in self._model.graph.node if node.domain not in DOMAINS or node.op_type not in OPS})
        if strange:
            raise Refused(f"the model has operators that this program does not compute: {', '.join(strange)}")

    def open(self, spec: Any, layout: training_pb2.Layout) -> tuple[int, int]:
        try:
            module = OnnxModule(self._model, layout, self._piece)
        except (KeyError, ValueError) as error:
            raise Refused(f"the model has a tensor that this program does not read: {error}") from None
        self._program = TorchProgram(module, names=module.names, **self._options)
        samples = self._program.open(spec, layout)
        try:
            weights = {tensor.name: np.ones(tuple(tensor.shape), np.float32) for tensor in layout.tensors}
            self.train(weights, np.arange(spec.train.batch // spec.train.microbatches), spec.train.batch)
        except Exception as error:  # whatever PyTorch says of shapes, types and attributes that it does not compute
            raise Refused(f"PyTorch does not compute the model: {type(error).__name__}: {error}") from None
        return samples

    def train(self, weights: Mapping[str, np.ndarray], indices: np.ndarray, batch: int) -> Result:
        return self._program.train(weights, indices, batch)

    def evaluate(self, weights: Mapping[str, np.ndarray], indices: np.ndarray) -> Result:
        return self._program.evaluate(weights, indices)
