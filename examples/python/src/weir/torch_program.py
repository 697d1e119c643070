"""A program for workers that computes with PyTorch: a module of yours in place of the run's ONNX file."""
from __future__ import annotations

from typing import Any, Callable, Mapping, Optional

import numpy as np
import torch

from .data import Images
from .pb import training_pb2
from .worker import Program, Refused, Result


class TorchProgram(Program):
    """module: computes what the run's model does; one that has no layers of batch norm leaves their statistics in `statistics`. names: of its parameters and buffers, those of the ONNX file where these
    differ (torch.onnx.export keeps them). data: what opens a source of the spec (data.Images: idx files below data_root)."""

    def __init__(self, module: torch.nn.Module, names: Optional[Mapping[str, str]] = None, device: str = "cpu", data_root: str = "/",
                 data: Optional[Callable[[Any, Any], Any]] = None):
        self.module, self.device = module.to(device), device
        names = names or {}
        self._tensors = {names.get(name, name): tensor for name, tensor in module.state_dict(keep_vars=True).items()}
        self._data = data or (lambda spec, source: Images(spec, source, data_root))
        self._held: Any = None
        self._statistics: dict[str, np.ndarray] = getattr(module, "statistics", {})
        for prefix, child in module.named_modules():
            if isinstance(child, torch.nn.modules.batchnorm._BatchNorm):
                own = [names.get(f"{prefix}.{name}", f"{prefix}.{name}") for name in ("running_mean", "running_var")]
                child.register_forward_pre_hook(lambda layer, inputs, own=own: self._note(layer, inputs[0], own))

    def _note(self, layer: torch.nn.Module, x: torch.Tensor, names: list[str]) -> None:
        if layer.training:
            over = [0, *range(2, x.dim())]
            for name, value in zip(names, (x.mean(over), x.var(over, unbiased=False))):
                self._statistics[name] = value.detach().cpu().numpy()

    def open(self, spec: Any, layout: training_pb2.Layout) -> tuple[int, int]:
        if spec.model.loss != "cross_entropy" or spec.model.loss_options.ListFields():
            raise Refused("model.loss: this program computes cross_entropy without options")
        for tensor in layout.tensors:
            own = self._tensors.get(tensor.name)
            if own is None or tuple(own.shape) != tuple(tensor.shape):
                has = "lacks it" if own is None else f"has it as {list(own.shape)}"
                raise Refused(f"the run trains '{tensor.name}' {list(tensor.shape)}, and the module {has}")
        trained = {tensor.name for tensor in layout.tensors}
        for name, tensor in self._tensors.items():
            if tensor.requires_grad and name not in trained:
                raise Refused(f"the run does not train '{name}', which the module has as a parameter")
        self._train = self._data(spec, spec.data.train)
        self._eval = self._data(spec, spec.data.eval) if spec.data.HasField("eval") else ()
        self._held = None
        return len(self._train), len(self._eval)

    def _forward(self, weights: Mapping[str, np.ndarray], data: Any, indices: np.ndarray) -> tuple[torch.Tensor, Result]:
        if self._held is not weights:
            with torch.no_grad():
                for name, value in weights.items():
                    self._tensors[name].copy_(torch.from_numpy(value))
            self._held = weights
        x, labels = (torch.from_numpy(array).to(self.device) for array in data.take(indices))
        scores = self.module(x)
        loss = torch.nn.functional.cross_entropy(scores, labels, reduction="sum")
        n = len(indices)
        return loss, Result(float(loss.detach()), n, float((scores.argmax(1) == labels).sum()), n, n)

    def train(self, weights: Mapping[str, np.ndarray], indices: np.ndarray, batch: int) -> Result:
        self.module.train()
        trained = {name: tensor for name, tensor in self._tensors.items() if name in weights and tensor.requires_grad}
        loss, result = self._forward(weights, self._train, indices)
        gradients = torch.autograd.grad(loss / batch, list(trained.values()))
        result.gradients = {name: gradient.cpu().numpy() for name, gradient in zip(trained, gradients)}
        result.statistics = dict(self._statistics)
        self._held = None if result.statistics else self._held  # batch norm has written its buffers
        return result

    def evaluate(self, weights: Mapping[str, np.ndarray], indices: np.ndarray) -> Result:
        self.module.eval()
        with torch.no_grad():
            return self._forward(weights, self._eval, indices)[1]
