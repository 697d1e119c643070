"""Small files of every data format, of the same few samples; a row of format.def is a function here.

A function writes one part of a dataset, "train" or "eval", into a folder and returns the keys of its source."""
import base64
import io
import os
import random
import struct
import zipfile
import zlib

TRAIN_SAMPLES, EVAL_SAMPLES, CLASSES, CHANNELS, SIDE, CONTEXT = 30, 19, 8, 3, 32, 4
PIXELS = CHANNELS * SIDE * SIDE


def idx(kind, shape, payload):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + payload


def npy(descr, shape, payload):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + payload


class Samples:
    """Columns of one part of a dataset, drawn anew alike for each format that holds them."""

    def __init__(self, seed, samples):
        draw = random.Random(seed)
        self.n = samples
        self.labels = bytes(draw.randrange(CLASSES) for _ in range(samples))
        self.sides = bytes(label % 2 for label in self.labels)
        self.images = draw.randbytes(samples * PIXELS)
        self.targets = [draw.uniform(-1, 1) for _ in range(samples * CLASSES)]
        self.shares = [draw.uniform(0, 1) for _ in range(samples * CLASSES)]

    def floats(self, values, order):
        return struct.pack(f"{order}{len(values)}f", *values)


PARTS = {"train": Samples(1, TRAIN_SAMPLES), "eval": Samples(2, EVAL_SAMPLES)}


def put(folder, name, content):
    folder.file(name, content)
    return name


def write_idx(folder, part, data):
    return (f"images: {put(folder, part + '-images', idx(8, (data.n, CHANNELS, SIDE, SIDE), data.images))}, "
            f"labels: {put(folder, part + '-labels', idx(8, (data.n,), data.labels))}")


def write_npy(folder, part, data):
    """All columns that losses want."""
    files = {"images": npy("|u1", (data.n, CHANNELS, SIDE, SIDE), data.images),
             "labels": npy("|u1", (data.n,), data.labels),
             "sides": npy("|u1", (data.n,), data.sides),
             "targets": npy("<f4", (data.n, CLASSES), data.floats(data.targets, "<")),
             "shares": npy("<f4", (data.n, CLASSES), data.floats(data.shares, "<"))}
    columns = (f"{name}: {put(folder, f'{part}-{name}.npy', content)}" for name, content in files.items())
    return f"columns: {{{', '.join(columns)}}}"


def write_npz(folder, part, data):
    """Images compressed, labels as they are."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("x.npy", npy("|u1", (data.n, CHANNELS, SIDE, SIDE), data.images), zipfile.ZIP_DEFLATED)
        archive.writestr("y.npy", npy("|u1", (data.n,), data.labels))
    return f"file: {put(folder, part + '.npz', content.getvalue())}, columns: {{images: x, labels: y}}"


def write_csv(folder, part, data):
    lines = [",".join(["y"] + [f"p{i}" for i in range(PIXELS)])]
    for i, label in enumerate(data.labels):
        lines.append(",".join(str(value) for value in (label, *data.images[i * PIXELS:(i + 1) * PIXELS])))
    name = put(folder, part + ".csv", "\n".join(lines).encode())
    return f'file: {name}, columns: {{images: "p0:p{PIXELS - 1}", labels: y}}'


def write_cifar(folder, part, data):
    records = [bytes([label]) + data.images[i * PIXELS:(i + 1) * PIXELS] for i, label in enumerate(data.labels)]
    halves = (b"".join(records[:7]), b"".join(records[7:]))
    return f"files: [{', '.join(put(folder, f'{part}-{i}.bin', half) for i, half in enumerate(halves))}]"


def write_tokens(folder, part, data):
    content = struct.pack(f"<{data.n}H", *data.labels)
    return f"file: {put(folder, part + '-tokens.bin', content)}, dtype: u16, context: {CONTEXT}, stride: 1"


def write_text(folder, part, data):
    content = "".join(chr(0x3b1 + label) for label in data.labels)
    return f"file: {put(folder, part + '.txt', content.encode())}, context: {CONTEXT}, stride: 1"


JPEG = base64.b64decode(  # 32 x 32 gradients over a chessboard, as PIL writes them with a quality of 30
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm"
    "x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAgACAD"
    "ASIAAhEBAxEB/8QAGAABAQEBAQAAAAAAAAAAAAAAAwQBAgX/xAAWEAADAAAAAAAAAAAAAAAAAAAAAgP/xAAXAQEBAQEAAAAAAAAAAAAAAAADBQEG"
    "/8QAGhEAAgIDAAAAAAAAAAAAAAAAAAIDERIUYf/aAAwDAQACEQMRAD8A8BZlqzFWZizGZ9btmRSZBLMsWYyzMWYLPrdspRSZArMsWYyzOVmCz63b"
    "OeikyCWZYsxlmYswGfW7ZSikyP/Z")


def png(pixels):
    """u8[channels, side, side] as a file."""
    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
    plane = SIDE * SIDE
    lines = b"".join(b"\0" + bytes(pixels[c * plane + y * SIDE + x] for x in range(SIDE) for c in range(CHANNELS))
                     for y in range(SIDE))
    head = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def write_images(folder, part, data):
    """The first sample is a JPEG."""
    for label in range(CLASSES):
        os.makedirs(f"{folder.path}/{part}/class-{label}", exist_ok=True)
    for i, label in enumerate(data.labels):
        name = f"{part}/class-{label}/{i}"
        if i == 0:
            put(folder, name + ".jpg", JPEG)
        else:
            put(folder, name + ".png", png(data.images[i * PIXELS:(i + 1) * PIXELS]))
    return f"folder: {part}"


FORMATS = {name.removeprefix("write_"): write for name, write in list(globals().items()) if name.startswith("write_")}
