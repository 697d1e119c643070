#!/usr/bin/env python3
"""The habits that a program can check: format, layering, places of third-party headers, sizes. TAP on stdout."""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LAYERS = ("common", "model", "storage", "server", "worker", "client")
MAY_INCLUDE = {"common": {"common", "model"}, "model": {"common", "model"}, "storage": {"common", "model", "storage"}}
for top in ("server", "worker", "client"):
    MAY_INCLUDE[top] = {top, "common", "model", "storage"}
# header prefix: folders or files that may include it
THIRD_PARTY = {
    "grpc/": ("common/rpc/",),
    "dnnl": ("worker/backend/cpu/",),
    "oneapi/": ("worker/backend/cpu/",),
    "cuda_runtime": ("worker/backend/cuda/",),
    "cublas": ("worker/backend/cuda/",),
    "cudnn": ("worker/backend/cuda/",),
    "nccl": ("worker/backend/cuda/",),
    "yaml.h": ("common/agree/spec",),
    "openssl/": ("common/base/sha256.c", "storage/redis/"),
    "onnx.pb-c.h": ("model/onnx/", "client/"),
    "jansson.h": ("client/", "server/"),
    "jpeglib.h": ("worker/data/formats/image_jpeg.c",),
    "jerror.h": ("worker/data/formats/image_jpeg.c",),
    "png.h": ("worker/data/formats/image_png.c",),
}
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 80
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]')


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.cu", "*.cuh"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [path for path in listed if os.path.exists(os.path.join(ROOT, path))]


def lines_of(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read().splitlines()


def check_format():
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *sources()], cwd=ROOT, capture_output=True,
                          text=True)
    return sorted({line.split(":")[0] for line in done.stderr.splitlines() if "error:" in line})


def check_layering():
    wrong = []
    for path in sources():
        top = path.split("/")[0]
        if top not in LAYERS:
            continue
        for number, line in enumerate(lines_of(path), 1):
            found = INCLUDE.match(line)
            target = found.group(1).split("/")[0] if found else ""
            if target in LAYERS and target not in MAY_INCLUDE[top]:
                wrong.append(f"{path}:{number}: {top} must not include {found.group(1)}")
    return wrong


def check_third_party():
    wrong = []
    for path in sources():
        if path.startswith("tests/"):
            continue
        for number, line in enumerate(lines_of(path), 1):
            found = INCLUDE.match(line)
            for prefix, places in THIRD_PARTY.items() if found else ():
                if found.group(1).startswith(prefix) and not path.startswith(places):
                    wrong.append(f"{path}:{number}: {found.group(1)} belongs in {', '.join(places)}")
    return wrong


def check_sizes():
    wrong = []
    for path in sources():
        lines = lines_of(path)
        if len(lines) > FILE_LINES_MAX and not path.startswith("tests/"):
            wrong.append(f"{path}: {len(lines)} lines; a file is one concept of at most {FILE_LINES_MAX}")
        began = None
        for number, line in enumerate(lines, 1):
            if line.startswith("}") and began:
                if number - began > FUNCTION_LINES_MAX:
                    wrong.append(f"{path}:{began}: a function of {number - began} lines")
                began = None
            elif re.match(r"^[a-z].*\)\s*\{$|^ .*\)\s*\{$", line) and not line.startswith("  "):
                began = number
    return wrong


def check_leftovers():
    wrong = []
    words = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b|^/[*/] ?[-=*]{3}")
    for path in sources():
        for number, line in enumerate(lines_of(path), 1):
            if words.search(line) and "XXXXXX" not in line:
                wrong.append(f"{path}:{number}: {line.strip()}")
    return wrong


def check_cppcheck():
    command = ["cppcheck", "--quiet", "--std=c11", "--enable=warning", "--inline-suppr", "-j2",
               "--suppress=missingInclude", "--suppress=invalidFunctionArg", "--error-exitcode=1",
               "--template={file}:{line}: {severity}: {message} [{id}]", "-I.", *LAYERS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stderr.splitlines() if done.returncode else []


CHECKS = [
    ("every file is formatted as .clang-format says", check_format),
    ("dependencies point down only", check_layering),
    ("third-party headers stay in their place", check_third_party),
    ("files and functions stay small", check_sizes),
    ("nothing is left over", check_leftovers),
    ("cppcheck finds nothing", check_cppcheck),
]


def main():
    failed = 0
    print(f"1..{len(CHECKS)}")
    for number, (name, check) in enumerate(CHECKS, 1):
        wrong = check()
        print(f"{'not ok' if wrong else 'ok'} {number} - {name}")
        for line in wrong:
            print(f"# {line}")
        failed += bool(wrong)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
