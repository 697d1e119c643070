"""What the GPU suite shares. It runs in the tree after a build, or in an unpacked `make dist`: nothing but Python's
standard library, and programs found by WEIR_BUILD_DIR (see harness.py). Importing this finds harness, too."""
import array
import os
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests", "integration"))

CODES = {"f4": "f", "i8": "q", "u1": "B", "u2": "H"}


def write_npy(path, kind, shape, chunks):
    """An array file of numpy's format 1.0, from chunks of raw little-endian bytes."""
    order = "|" if kind == "u1" else "<"
    head = f"{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        for chunk in chunks:
            file.write(chunk)


def numbers(kind, values):
    return array.array(CODES[kind], values).tobytes()
