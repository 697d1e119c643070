#!/usr/bin/env python3
"""Makes the seeds of tests/fuzz/corpus/FORMAT for the data formats: small files as users have them, written by
the programs that users write them with. The unit tests of the formats read them, too. Files named finding-* are what the
fuzzer found, as it left them. Needs numpy and Pillow."""
import gzip
import io
import json
import os
import struct
import sys
import zipfile
import zlib

import numpy as np
from PIL import Image

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
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, array in arrays.items():
            member = zipfile.ZipInfo(name + ".npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, written(lambda file, array=array: np.save(file, array)))
    save("npz", "streamed.npz", pipe.content)
    # as if each part of the archive were beyond 4 GB
    limit, zipfile.ZIP64_LIMIT = zipfile.ZIP64_LIMIT, 16
    try:
        save("npz", "zip64.npz", written(lambda file: np.savez(file, **arrays)))
    finally:
        zipfile.ZIP64_LIMIT = limit


def npy(array, version=None):
    return written(lambda file: np.lib.format.write_array(file, np.asarray(array), version))


def make_npy():
    save("npy", "f4.npy", npy(np.arange(6, dtype=np.float32).reshape(2, 3)))
    save("npy", "i8.npy", npy(np.array([1, -2, 3]), (2, 0)))
    save("npy", "u1.npy", npy(np.zeros((2, 1, 2, 2), np.uint8), (3, 0)))
    save("npy", "big-endian.npy", npy(np.arange(3, dtype=">i4")))
    save("npy", "fortran.npy", npy(np.asfortranarray(np.zeros((2, 3), np.int32))))
    save("npy", "fields.npy", npy(np.zeros(2, [("a", "<f4"), ("b", "<i4")])))
    save("npy", "f8.npy", npy(np.zeros(2)))


def make_idx():
    images = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(12))
    floats = bytes([0, 0, 13, 2, 0, 0, 0, 2, 0, 0, 0, 1]) + struct.pack(">2f", 1, -0.5)
    save("idx", "images", images)
    save("idx", "floats", floats)
    save("idx", "images.gz", gzip.compress(images, mtime=0))
    save("idx", "lies", bytes([0, 0, 8, 4]) + b"\xff" * 16)


def make_csv():
    save("csv", "plain.csv", b"id,x1,x2,x3,y\n1,0.5,-2,1e-3,3\n2,4,5,6,0\n")
    save("csv", "excel.csv", b'\xef\xbb\xbf"x1","x2","x3","y"\r\n"1","2.5","3","0"\r\n\r\n"4","5","a ""b""\n","1"\r\n')
    save("csv", "numbers.csv", b"1,2\n-3.25E+2,123456789012345678\n.5,9007199254740993\n")
    save("csv", "tabs.csv", b"1\t2\n3\t \n")
    save("csv", "empty-field.csv", b"x1,x2,x3,y\n1,,3,4\n")


def make_cifar():
    save("cifar", "cifar-10.bin", bytes([7]) + bytes(3072))
    save("cifar", "cifar-100.bin", bytes([3, 60]) + bytes(3072))


def make_tokens():
    save("tokens", "u16.bin", np.arange(12, dtype=np.uint16).tobytes())
    save("tokens", "u32.bin", np.array([1, 2, 3, 4000000000, 5], np.uint32).tobytes())


def make_text():
    save("text", "ascii.txt", b"to be or not to be\n")
    save("text", "unicode.txt", "Gr\u00fc\u00dfe, \u20ac \U0001d11e\n".encode())
    save("text", "latin-1.txt", "Gr\u00fc\u00dfe".encode("latin-1"))
    save("text", "surrogate.txt", b"a\xed\xa0\x80b")


def picture(kind, mode, **options):
    pixels = np.random.default_rng(1).integers(0, 256, (9, 11, 4), np.uint8)
    return written(lambda file: Image.fromarray(pixels).convert(mode).save(file, kind, **options))


def make_image():
    for mode in ("RGB", "L", "CMYK"):
        save("image", f"{mode.lower()}.jpg", picture("JPEG", mode, quality=60))
    save("image", "progressive.jpg", picture("JPEG", "RGB", progressive=True, quality=30))
    for mode in ("RGB", "RGBA", "L", "LA", "P", "1", "I;16"):
        save("image", f"{mode.lower().replace(';', '')}.png", picture("PNG", mode))
    bomb = bytearray(picture("PNG", "L"))
    bomb[16:24] = struct.pack(">2I", 60000, 60000)
    bomb[29:33] = struct.pack(">I", zlib.crc32(bomb[12:29]))
    save("image", "bomb.png", bytes(bomb))
    bomb = bytearray(picture("JPEG", "RGB", quality=60))
    at = bomb.index(b"\xff\xc0")
    bomb[at + 5:at + 9] = b"\xff" * 4
    save("image", "bomb.jpg", bytes(bomb))
    with open(os.path.join(CORPUS, "..", "..", "parity", "images.json"), encoding="utf-8") as golden:
        for entry in json.load(golden)["files"]:  # what Pillow does not write, too
            save("image", entry["name"].replace(", ", "-").replace(" ", "-").replace(":", ""), bytes.fromhex(entry["file"]))


MAKERS = {"npz": make_npz, "npy": make_npy, "idx": make_idx, "csv": make_csv, "cifar": make_cifar, "tokens": make_tokens,
          "text": make_text, "image": make_image}

if __name__ == "__main__":
    for maker in sys.argv[1:] or MAKERS:
        MAKERS[maker]()
