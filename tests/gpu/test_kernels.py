"""What the compiler says of our kernels, which it leaves beside their objects, held against what GPUs have: registers and
shared memory for the blocks that are launched, threads under way to hide what memory takes, nothing in local memory."""
import glob
import os
import re

from gpu import ROOT
from harness import BUILD, Skip, main

SOURCES = os.path.join(ROOT, "worker", "backend", "cuda")
OBJECTS = os.path.join(BUILD, "obj", "worker", "backend", "cuda")

# Of a multiprocessor of an A100 (an H100 has more shared memory, and else as much).
REGISTERS, SHARED_BYTES, THREADS_MOST = 65536, 164 << 10, 2048
# Registers come in units of 8 a thread; the driver keeps so much shared memory of each block.
REGISTERS_UNIT, SHARED_OF_DRIVER = 8, 1 << 10
THREADS_LEAST = 512  # with 16 bytes each: about what is under way at a GPU's bandwidth and its memory's latency
# Bytes of a thread's own memory. Registers of chains are numbered by the program that is interpreted; the others are the
# long way of the sine of great angles, odometers over axes, and the taps of a place along each dimension.
FRAMES = {"real_kernel": 256, "integer_kernel": 64, "draw_kernel": 64, "resize_kernel": 128,
          "sample_kernel": 320, "sample_grid_kernel": 352, "tap_keys_kernel": 320}


def constants(text):
    """Names of enums, as far as they are numbers made of numbers and each other."""
    found = {}
    for body in re.findall(r"enum[^{;]*\{([^}]*)\}", text):
        for name, value in re.findall(r"(\w+) = ([^,}]+)", body):
            try:
                found[name] = eval(value.replace("/", "//").strip(), {}, found)  # pylint: disable=eval-used
            except (NameError, SyntaxError):
                pass
    return found


def launches(path):
    """Threads of a block by the name of the kernel; "" is the most of the file, for those launched by a pointer."""
    texts = []
    for name in (os.path.join(SOURCES, "engine", "device.h"), path.replace(".cu", ".h"), path):
        if os.path.exists(name):
            with open(name) as file:
                texts.append(re.sub(r"\\\n", " ", file.read()))
    known, found = constants("\n".join(texts)), {}
    for name, arguments in re.findall(r"CUDA_LAUNCH\(\s*(\w+(?:##\w+)?),(.*?)\)\s*(?:;|\n|$)", texts[-1], re.S):
        depth, parts = 0, [""]
        for letter in arguments:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += letter
        found[name.split("##")[0]] = eval(parts[1].strip(), {}, known)  # pylint: disable=eval-used
    found[""] = max(found.values())
    return found


def threads_of(kernel, launched):
    names = [name for name in launched if name and (kernel == name or (name.endswith("_") and kernel.startswith(name)))]
    return launched[names[0] if names else ""]


ENTRY = re.compile(r"Compiling entry function '_Z(\d+)(\w+)' for '(\w+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?(\d+) bytes smem)?")


def kernels():
    """[(file, kernel, architecture, {frame, spilled, registers, shared, threads})], a kernel of each architecture."""
    reports = sorted(glob.glob(os.path.join(OBJECTS, "**", "*.cu.ptxas"), recursive=True))
    if not reports:
        raise Skip("nvcc has compiled nothing here")
    found = []
    for report in reports:
        source = os.path.join(SOURCES, os.path.relpath(report, OBJECTS).replace(".ptxas", ""))
        launched, entry = launches(source), None
        with open(report) as file:
            for line in file:
                begin, frame, used = ENTRY.search(line), FRAME.search(line), USED.search(line)
                if begin:
                    name = begin.group(2)[:int(begin.group(1))]
                    entry = {"threads": threads_of(name, launched)}
                    found.append((os.path.relpath(source, SOURCES), name, begin.group(3), entry))
                elif frame and "frame" not in entry:
                    entry["frame"], stores, loads = map(int, frame.groups())
                    entry["spilled"] = stores + loads
                elif used and "registers" not in entry:
                    entry["registers"], entry["shared"] = int(used.group(1)), int(used.group(2) or 0)
    return found


def complain(wrong):
    assert not wrong, "\n".join(f"{file}: {kernel} ({architecture}): {what}" for file, kernel, architecture, what in wrong)


def test_each_kernel_that_is_launched_is_compiled_for_each_architecture():
    found = kernels()
    architectures = {architecture for _, _, architecture, _ in found}
    for file in {file for file, _, _, _ in found}:
        with open(os.path.join(SOURCES, file)) as source:
            defined = set(re.findall(r"__global__ void (?:__launch_bounds__\(.*?\) )?((?!__)\w+)\(", source.read()))
        for architecture in architectures:
            compiled = {kernel for name, kernel, of, _ in found if (name, of) == (file, architecture)}
            assert defined <= compiled, f"{file} ({architecture}): {sorted(defined - compiled)}"
    assert all(len(entry) == 5 for _, _, _, entry in found), [entry for entry in found if len(entry[3]) != 5]


def test_blocks_have_the_registers_and_threads_that_memory_needs():
    wrong = []
    for file, kernel, architecture, entry in kernels():
        of_thread = -(-entry["registers"] // REGISTERS_UNIT) * REGISTERS_UNIT
        blocks = min(REGISTERS // (of_thread * entry["threads"]), THREADS_MOST // entry["threads"],
                     SHARED_BYTES // (entry["shared"] + SHARED_OF_DRIVER))
        if blocks * entry["threads"] < THREADS_LEAST:
            wrong.append((file, kernel, architecture, f"{blocks} blocks of {entry['threads']} threads: "
                          f"{entry['registers']} registers, {entry['shared']} bytes of shared memory"))
    complain(wrong)


def test_nothing_is_spilled_and_only_known_kernels_have_memory_of_their_own():
    complain([(file, kernel, architecture, f"{entry['frame']} bytes of stack, {entry['spilled']} spilled")
              for file, kernel, architecture, entry in kernels()
              if entry["spilled"] or entry["frame"] > FRAMES.get(kernel, 0)])


if __name__ == "__main__":
    main(globals())
