"""ONNX files: their tensors, and the form that they are exported in."""
from __future__ import annotations

from typing import Any, Callable, Mapping

import numpy as np

from .errors import Invalid
from .pb import onnx_file_pb2 as pb

FLOAT, FLOAT16, BFLOAT16, EXTERNAL = 1, 10, 16, 1
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 16: "<u2"}  # by TensorProto.DataType
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


def values(tensor: Any, piece: Callable[[str], bytes]) -> np.ndarray:
    """What a tensor of the file holds; f16 and bf16 as f32. piece: reads one of a large tensor. Raises KeyError for a type that is
    not known here, ValueError where the bytes are of another length."""
    dtype, shape, data = DTYPES[tensor.data_type], tuple(tensor.dims), tensor.raw_data
    if tensor.data_location == EXTERNAL:
        keys = {entry.key: entry.value for entry in tensor.external_data}["sha256"]
        data = b"".join(piece(keys[at:at + 64]) for at in range(0, len(keys), 64))
    listed = tensor.float_data or tensor.int64_data or tensor.double_data or tensor.int32_data
    if tensor.data_type in (FLOAT16, BFLOAT16) and tensor.int32_data:  # their bits
        array = np.array(tensor.int32_data, np.uint16).view(dtype)
    else:
        array = np.array(listed, dtype) if not data and listed else np.frombuffer(data, dtype)
    if tensor.data_type == BFLOAT16:
        array = (array.astype("<u4") << 16).view("<f4")
    return array.astype("<f4" if tensor.data_type == FLOAT16 else array.dtype).reshape(shape)


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
