"""Reading and transforming data on one core: our formats and transforms beside torchvision's (image folders) and numpy's
(arrays), on the same files. Called by bench.py with the path of data_bench. WEIR_BENCH_IMAGES names an image folder
in place of the small images that are drawn here."""
import os
import random
import subprocess
import sys
import tempfile
import time

import numpy
import torch
from PIL import Image
from torchvision import datasets, transforms

BATCH, ROUNDS = 64, 3
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NORMALIZE = ("{scale: 0.00392156862745098}, {normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}}")
NORMALIZE_ONE = "{scale: 0.00392156862745098}, {normalize: {mean: [0.286], std: [0.353]}}"


def draw_image(path, width, height, seed):
    """Large shapes and fine noise, about as large a file as a photograph."""
    draw = numpy.random.default_rng(seed)
    coarse = Image.fromarray(draw.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), numpy.uint8))
    smooth = numpy.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), numpy.int16)
    noise = draw.integers(-12, 13, (height, width, 3), numpy.int16)
    Image.fromarray(numpy.clip(smooth + noise, 0, 255).astype(numpy.uint8)).save(path, "JPEG", quality=90)


def draw_folder(folder, width, height, count):
    for label in range(2):
        os.makedirs(f"{folder}/{label}")
        for i in range(count // 2):
            draw_image(f"{folder}/{label}/{i}.jpg", width, height, label * count + i)
    return folder


def ours(bench, folder, source, chain, dtype, shape, samples):
    spec = os.path.join(folder, "spec.yaml")
    with open(spec, "w") as out:
        out.write(f"name: bench\nmodel: {{onnx: m.onnx}}\ndata:\n  root: /\n  train: {source}\n"
                  f"  transforms: [{chain}]\ntrain: {{steps: 1, batch: {BATCH}, optimizer: {{lr: 1}}}}\n")
    done = subprocess.run([bench, spec, dtype, shape, str(samples)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def rate_of(read, samples, count):
    """Batches of shuffled samples by `read`, in samples per second of CPU time, the best of some rounds."""
    order = random.Random(1).sample(range(count), count)
    best = 0.0
    for _ in range(ROUNDS):
        begin = time.process_time()
        for place in range(0, samples, BATCH):
            read([order[(place + i) % count] for i in range(BATCH)])
        best = max(best, (samples + BATCH - 1) // BATCH * BATCH / (time.process_time() - begin))
    return best


def image_peer(folder, chain):
    dataset = datasets.ImageFolder(folder, transforms.Compose([*chain, transforms.ToTensor(),
                                                               transforms.Normalize(MEAN, STD)]))
    return lambda indices: torch.stack([dataset[i][0] for i in indices]), len(dataset)


def array_peer(path):
    array = numpy.load(path, mmap_mode="r")
    return lambda indices: (array[indices].astype(numpy.float32) * numpy.float32(1 / 255) - numpy.float32(0.286)
                            ) / numpy.float32(0.353), len(array)


def window_peer(path, context):
    tokens = numpy.memmap(path, numpy.uint16, "r")
    count = (len(tokens) - 1) // context
    return lambda indices: numpy.stack([tokens[i * context:(i + 1) * context].astype(numpy.int64) for i in indices]), count


def report(name, peer_name, our_rate, peer_rate):
    print(f"{name}: {our_rate:.0f} samples/s; {peer_name}: {peer_rate:.0f}; ratio {our_rate / peer_rate:.2f}")
    sys.stdout.flush()


def bench_images(bench, folder):
    given = os.environ.get("WEIR_BENCH_IMAGES")
    small = os.path.abspath(given) if given else draw_folder(f"{folder}/small", 32, 32, 512)
    large = draw_folder(f"{folder}/large", 500, 375, 32)
    cases = (
        ("images of 32x32, normalized", small, "", [], "3,32,32", 4096),
        ("images of 32x32, padded random crop and flip", small,
         "{random_crop: {size: 32, padding: 4}}, {horizontal_flip: {}}, ",
         [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()], "3,32,32", 4096),
        ("images of 500x375, random resized crop of 224 and flip", large,
         "{random_resized_crop: {size: 224}}, {horizontal_flip: {}}, ",
         [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()], "3,224,224", 192),
        ("images of 500x375, resize to 256 and center crop of 224", large,
         "{resize: {size: 256}}, {center_crop: {size: 224}}, ",
         [transforms.Resize(256), transforms.CenterCrop(224)], "3,224,224", 192),
    )
    for name, root, chain, peer_chain, shape, samples in cases:
        our_rate = ours(bench, folder, f"{{format: images, folder: {root[1:]}}}", chain + NORMALIZE, "f32", shape, samples)
        read, count = image_peer(root, peer_chain)
        report(name, "torchvision", our_rate, rate_of(read, samples, count))


def bench_arrays(bench, folder):
    draw = numpy.random.default_rng(1)
    numpy.save(f"{folder}/x.npy", draw.integers(0, 256, (20000, 28, 28), numpy.uint8))
    our_rate = ours(bench, folder, f"{{format: npy, columns: {{images: {folder[1:]}/x.npy}}}}", NORMALIZE_ONE, "f32",
                    "1,28,28", 100000)
    read, count = array_peer(f"{folder}/x.npy")
    report("npy of u8[28,28], normalized", "numpy", our_rate, rate_of(read, 100000, count))
    draw.integers(0, 50000, 4 << 20, numpy.uint16).tofile(f"{folder}/tokens.bin")
    our_rate = ours(bench, folder, f"{{format: tokens, file: {folder[1:]}/tokens.bin, dtype: u16, context: 256}}", "",
                    "i64", "256", 100000)
    read, count = window_peer(f"{folder}/tokens.bin", 256)
    report("tokens, windows of 256", "numpy", our_rate, rate_of(read, 100000, count))


def main():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench_images(sys.argv[1], folder)
        bench_arrays(sys.argv[1], folder)


if __name__ == "__main__":
    main()
