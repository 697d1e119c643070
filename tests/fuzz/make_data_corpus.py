#!/usr/bin/env python3
"""Makes the seeds of tests/fuzz/corpus/FORMAT for the data formats: small files as users have them, written by
the programs that users write them with. The unit tests of the formats read them, too. Files named finding-* are what the
fuzzer found, as it left them. Needs numpy."""
import io
import os
import sys
import zipfile

import numpy as np

CORPUS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def save(folder, name, content):
    path = os.path.join(CORPUS, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as file:
        file.write(content)


class Pipe(io.RawIOBase):
    """What cannot seek: zipfile then writes the sizes behind each member."""

    def __init__(self):
        self.content = b""

    def writable(self):
        return True

    def write(self, data):
        self.content += bytes(data)
        return len(data)


def written(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def make_npz():
    arrays = {"images": np.arange(12, dtype=np.uint8).reshape(3, 1, 2, 2),
              "weights": (np.arange(6, dtype=np.float32) / 4).reshape(3, 2), "labels": np.array([2, 0, 1])}
    save("npz", "savez.npz", written(lambda file: np.savez(file, **arrays)))
    save("npz", "savez_compressed.npz", written(lambda file: np.savez_compressed(file, **arrays)))
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(name + ".npy", written(lambda file, array=array: np.save(file, array)))
    save("npz", "streamed.npz", pipe.content)
    # as if each part of the archive were beyond 4 GB
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 16
    try:
        save("npz", "zip64.npz", written(lambda file: np.savez(file, **arrays)))
    finally:
        zipfile.ZIP64_LIMIT = limit


MAKERS = {"npz": make_npz}

if __name__ == "__main__":
    for maker in sys.argv[1:] or MAKERS:
        MAKERS[maker]()
