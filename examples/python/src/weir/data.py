"""Datasets of specs, as far as workers in Python read them: format idx, scaled and normalised."""
from __future__ import annotations

import gzip
import os
from typing import Any

import numpy as np

from .worker import Refused

DTYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def read_idx(path: str) -> np.ndarray:
    """A file of the format idx, compressed by gzip or not."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        shape = np.frombuffer(data, ">u4", data[3], 4)
        return np.frombuffer(data, DTYPES[data[2]], int(np.prod(shape)), 4 + 4 * data[3]).reshape(tuple(shape))
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from None
    except (IndexError, KeyError, ValueError, EOFError):
        raise Refused(f"{path}: it is no idx file, or cut short") from None


class Images:
    """Images and labels of data.train or data.eval."""

    def __init__(self, spec: Any, source: Any, root: str = "/"):
        if source.format != "idx":
            raise Refused(f"data: format '{source.format}' is not read here, idx is")
        folder = os.path.join(root, spec.data.root)
        self.images = read_idx(os.path.join(folder, source.images))
        self.labels = read_idx(os.path.join(folder, source.labels)).astype(np.int64)
        self._transforms = list(spec.data.transforms)
        if self.images.ndim == 3:
            self.images = self.images[:, None]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f32[n, channels, height, width] after the transforms, and i64[n]."""
        x = self.images[indices].astype(np.float32)
        for transform in self._transforms:
            if transform.HasField("scale"):
                x = x * np.float32(transform.scale)
            else:
                mean, std = (np.array(values, np.float32)[:, None, None] for values in (transform.normalize.mean, transform.normalize.std))
                x = (x - mean) / std
        return x, self.labels[indices]
