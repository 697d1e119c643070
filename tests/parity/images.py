#!/usr/bin/env python3
"""Makes images.json: small files of every kind that worker/data decodes with what Pillow makes of them, and what
torchvision's transforms make of small images. tests/unit/worker/data/images_test.c compares ours. Needs
tests/parity/requirements.txt; run as

    python tests/parity/images.py > tests/parity/images.json"""
import io
import json
import random
import struct
import zlib

import torch
from PIL import Image
from torchvision.transforms import v2

torch.set_flush_denormal(True)  # as Weir computes

HEIGHT, WIDTH = 11, 19


def pixels(channels, height=HEIGHT, width=WIDTH):
    """Smooth with some noise, as photographs are."""
    noise = random.Random(channels)
    return bytes((x * 7 + y * (11 + 3 * c) + 40 * c + noise.randrange(24)) % 256
                 for y in range(height) for x in range(width) for c in range(channels))


def encode(mode, form, channels, **options):
    image = Image.frombytes(mode, (WIDTH, HEIGHT), pixels(channels))
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif_of_a_turned_image():
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif


def palette(transparency=None):
    image = Image.frombytes("RGB", (WIDTH, HEIGHT), pixels(3)).quantize(16)
    out = io.BytesIO()
    image.save(out, "PNG", **({"transparency": transparency} if transparency is not None else {}))
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(depth, color, rows, interlaced=False, extra=b""):
    """What Pillow does not write: 16 bits, few bits and interlaced. rows: of bytes, without filters."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, depth, color, 0, 0, int(interlaced))
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def rows_of(channels, bytes_each=1):
    data, size = pixels(channels * bytes_each), WIDTH * channels * bytes_each
    return [data[y * size:(y + 1) * size] for y in range(HEIGHT)]


def packed_rows(depth):
    """Gray values of few bits."""
    rows = []
    for row in rows_of(1):
        bits = "".join(format(value >> (8 - depth), f"0{depth}b") for value in row)
        bits += "0" * (-len(bits) % 8)
        rows.append(bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8)))
    return rows


def adam7_rows():
    rows = rows_of(3)
    for top, left, down, along in ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2),
                                   (1, 0, 2, 1)):
        for row in rows[top::down]:
            yield b"".join(row[3 * x:3 * x + 3] for x in range(left, WIDTH, along))


def files():
    yield "JPEG, 4:2:0", encode("RGB", "JPEG", 3, quality=90)
    yield "JPEG, 4:2:2", encode("RGB", "JPEG", 3, quality=80, subsampling=1)
    yield "JPEG, 4:4:4", encode("RGB", "JPEG", 3, quality=95, subsampling=0)
    yield "JPEG, progressive", encode("RGB", "JPEG", 3, progressive=True)
    yield "JPEG, gray", encode("L", "JPEG", 1)
    yield "JPEG, CMYK", encode("CMYK", "JPEG", 4)
    yield "JPEG, restarted", encode("RGB", "JPEG", 3, restart_marker_blocks=1)
    yield "JPEG, turned by EXIF", encode("RGB", "JPEG", 3, exif=exif_of_a_turned_image())
    yield "PNG, RGB", encode("RGB", "PNG", 3)
    yield "PNG, RGBA", encode("RGBA", "PNG", 4)
    yield "PNG, gray", encode("L", "PNG", 1)
    yield "PNG, gray and alpha", encode("LA", "PNG", 2)
    yield "PNG, palette", palette()
    yield "PNG, palette with a transparent entry", palette(3)
    for depth in (1, 2, 4):
        yield f"PNG, gray of {depth} bits", png(depth, 0, packed_rows(depth))
    yield "PNG, RGB of 16 bits", png(16, 2, rows_of(3, 2))
    yield "PNG, RGBA of 16 bits", png(16, 6, rows_of(4, 2))
    yield "PNG, RGB with a transparent colour", png(8, 2, rows_of(3), extra=chunk(b"tRNS", bytes(6)))
    yield "PNG, with a gamma", png(8, 2, rows_of(3), extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "PNG, interlaced", png(8, 2, list(adam7_rows()), interlaced=True)


def decoded(data):
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return {"file": data.hex(), "rgb": image.tobytes().hex(), "gray": image.convert("L").tobytes().hex()}


SHAPES = ([3, 9, 14], [1, 20, 7], [3, 5, 5])
TRANSFORMS = [("{resize: {size: [4, 6]}}", v2.Resize([4, 6])), ("{resize: {size: [13, 17]}}", v2.Resize([13, 17])),
              ("{resize: {size: 5}}", v2.Resize(5)), ("{resize: {size: 12}}", v2.Resize(12)),
              ("{center_crop: {size: 4}}", v2.CenterCrop(4)),
               ("{center_crop: {size: [3, 12]}}", v2.CenterCrop([3, 12])),
              ("{center_crop: {size: 15}}", v2.CenterCrop(15))]


def transformed(shape, text, transform):
    channels, height, width = shape
    data = pixels(channels, height, width)
    image = torch.tensor(list(data), dtype=torch.float32).reshape(height, width, channels).permute(2, 0, 1)
    out = transform(image)
    return {"transform": text, "shape": shape, "image": data.hex(), "out_shape": list(out.shape),
            "out": [round(value, 4) for value in out.flatten().tolist()]}


def main():
    result = {"files": [{"name": name, **decoded(data)} for name, data in files()],
              "transforms": [transformed(shape, *entry) for shape in SHAPES for entry in TRANSFORMS]}
    print(json.dumps(result, separators=(",", ":")))


if __name__ == "__main__":
    main()
