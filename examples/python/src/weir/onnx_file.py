"""ONNX files, as far as their weights go."""
from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from .errors import Invalid
from .pb import onnx_file_pb2 as pb

FLOAT, FLOAT16, BFLOAT16, EXTERNAL = 1, 10, 16, 1
PIECES = "weir.pieces"  # where a large tensor lies in a file that the coordinator keeps


def parse(data: bytes) -> Any:
    model = pb.Model()
    model.ParseFromString(data)
    return model


def check_whole(data: bytes, path: str) -> None:
    """Refuses a file of which a part lies in other files."""
    try:
        tensors = parse(data).graph.initializer
    except Exception:
        raise Invalid("INVALID_ARGUMENT", f"{path}: this is no ONNX file") from None
    for tensor in tensors:
        if tensor.data_location == EXTERNAL:
            raise Invalid("INVALID_ARGUMENT", f"{path}: '{tensor.name}' lies in another file: `weir submit` sends those, too")


def _put(tensor: Any, values: np.ndarray) -> None:
    if tensor.data_type == FLOAT16:
        values = values.astype("<f2")
    elif tensor.data_type == BFLOAT16:  # to nearest, ties to even
        bits = np.ascontiguousarray(values, "<f4").view("<u4")
        values = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    _set(tensor, np.ascontiguousarray(values).tobytes())


def _set(tensor: Any, data: bytes) -> None:
    for field in ("float_data", "int32_data", "external_data", "data_location"):
        tensor.ClearField(field)
    tensor.raw_data = data


def fill(model: Any, weights: Mapping[str, np.ndarray], piece: Callable[[str], bytes]) -> None:
    """Puts the weights in place of the file's. piece: reads one of a tensor that is not trained."""
    missing = dict(weights)
    for tensor in model.graph.initializer:
        if tensor.name in missing:
            _put(tensor, missing.pop(tensor.name))
        elif tensor.data_location == EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            if entries.get("location") == PIECES:
                keys = entries["sha256"]
                _set(tensor, b"".join(piece(keys[at:at + 64]) for at in range(0, len(keys), 64)))
    if missing:
        raise Invalid("UNIMPLEMENTED", f"'{min(missing)}' is no initializer of the file: `weir export` writes such models")


def infer(model: Any) -> None:
    """Batch norm goes by its running statistics, and nothing drops out."""
    for node in model.graph.node:
        if node.op_type == "BatchNormalization":
            for attribute in node.attribute:
                if attribute.name == "training_mode":
                    attribute.i = 0
            del node.output[1:]
        elif node.op_type == "Dropout":
            del node.input[2:]
