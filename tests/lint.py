#!/usr/bin/env python3
"""The habits that a program can check: format, layering, places of third-party headers, sizes. TAP on stdout."""
import collections
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TOPS = ("common", "model", "storage", "server", "worker", "client")
PROCESSES = ("server", "worker", "client")  # which never include each other
ROOM_FILES_MAX = 40
ROOMS_WITHOUT_MAX = ("model/ops", "model/ops/shared")  # a file for each operator
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
    "hiredis/": ("storage/redis/",),
    "openssl/": ("common/base/sha256.c", "common/certs/", "common/door/door.c", "storage/redis/"),
    "onnx.pb-c.h": ("model/onnx/", "client/"),
    "jansson.h": ("client/", "server/"),
    "jpeglib.h": ("worker/data/formats/image_jpeg.c",),
    "jerror.h": ("worker/data/formats/image_jpeg.c",),
    "png.h": ("worker/data/formats/image_png.c",),
    "xxh": ("common/base/hash.c",),
    "microhttpd.h": ("common/http/",),
    "gnutls/": ("common/http/",),
}
# The coordinator's decisions: no calls, store, threads or clock, so that a simulator can drive them.
PURE = ("server/coordinator/",)
IMPURE = ("server/coordinator/shell/",)
EFFECTS = ("common/rpc/", "common/base/clock.h", "storage/")
EFFECT_HEADERS = ("pthread.h", "time.h", "unistd.h", "sys/socket.h")
# The clock that people set is for what they read: who waits for it, or measures by it, goes wrong when it is set.
WALL_CLOCK_IN = ("common/base/clock.c", "common/base/log.c", "common/metrics/process.c")
# What a room above defines for one below: an operator's own part of what operators share, and hooks.
DECLARED_BELOW = ("einsum_init", "einsum_out_shape", "extremum_backward", "reduce_is_pool", "graph_load_onnx", "model_run",
                  "cuda_attention_wants_turned", "cuda_chain_flush", "cuda_is_chained")
# Names of runs and sweeps that requests carry are looked up as their caller sees them: by ask.c, for every message that has one,
# or where it is said here. Elsewhere nobody reads them.
NAMES = re.compile(r"\b(\w*request|asked->message\))->(run|runs|sweep)\b")
NAMES_IN = {"server/coordinator/shell/watch.c": "mem_strdup(request->run)",  # for shell_find_run, on the event loop
            "server/coordinator/shell/submit.c": "request->sweep ?",  # the spec of a new one
            "server/coordinator/shell/manage.c": "&asked->viewer, request->runs[i]",
            "server/coordinator/shell/download.c": "download->request->run,"}  # in the text of an error
OURSELVES = re.compile(r"struct garbage_job\){\.shell = shell, \.viewer = viewer_of_all}|shell_collect_garbage\(shell, NULL, &viewer_of_all,")
FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 5
FOREIGN_SIGNATURES = ("tests/simulation/cuda/", "common/door/door.c", "common/http/visit.",  # NVIDIA's functions, simulated; callbacks of
                      "common/rpc/credentials.c")  # OpenSSL's, libmicrohttpd's and gRPC's
SVG_NAME = "http://www.w3.org/2000/svg"  # names the kind of an element; nobody asks for it
PAGE_REFUSED = re.compile(r"""\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval|setTimeout\("|new Function)\b|https?://|\son\w+="|\sstyle="|javascript:""")
INCLUDE = re.compile(r'^\s*#include\s+["<]([^">]+)[">]')
# A definition at the start of a line: its name, and what is between its parentheses, which may hold others once.
DEFINITION = re.compile(r"^(?![#}\s]|typedef\b)[^;{}()=]*?\b(\w+)\(((?:[^(){};]|\([^(){};]*\))*)\)\s*\{", re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
DECLARATION = re.compile(r"^(?![#}\s]|typedef\b|static\b)[^;{}()=]*?\b(\w+)\((?:[^(){};]|\([^(){};]*\))*\)\s*"
                         r"(?:__attribute__\(\(.*?\)\)\)?)?;", re.MULTILINE)


def sources():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.c", "*.h", "*.cu", "*.cuh"],
                            cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [path for path in listed if os.path.exists(os.path.join(ROOT, path))]


def scripts():
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.py"], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout.split()
    return [path for path in listed if os.path.exists(os.path.join(ROOT, path))]


def tables():
    return subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "*.def"], cwd=ROOT, capture_output=True,
                          text=True, check=True).stdout.split()


def lines_of(path):
    with open(os.path.join(ROOT, path)) as file:
        return file.read().splitlines()


def page_files(*endings):
    """Of the dashboard's page."""
    folder = os.path.join("client", "ui", "assets")
    return [os.path.join(folder, name) for name in sorted(os.listdir(os.path.join(ROOT, folder))) if name.endswith(endings)]


def check_format():
    done = subprocess.run(["clang-format", "--dry-run", "-Werror", *sources(), *page_files(".js")], cwd=ROOT, capture_output=True,
                          text=True)
    return sorted({line.split(":")[0] for line in done.stderr.splitlines() if "error:" in line})


def rooms():
    """The folders of ARCHITECTURE.md's table, from the lowest to the highest."""
    with open(os.path.join(ROOT, "ARCHITECTURE.md")) as file:
        table = re.search(r"```rooms\n(.*?)```", file.read(), re.S)
    return [line.split()[0] for line in table.group(1).splitlines() if line.strip()]


def included_files(path):
    """(line, file) for each include of a file of ours."""
    for number, line in enumerate(lines_of(path), 1):
        found = INCLUDE.match(line)
        if found and found.group(1).split("/")[0] in TOPS:
            yield number, found.group(1)


def check_rooms():
    wrong, order = [], {room: place for place, room in enumerate(rooms())}
    seen = set()
    for path in sources() + tables():
        room = os.path.dirname(path)
        if path.split("/")[0] not in TOPS:
            continue
        seen.add(room)
        if room not in order:
            wrong.append(f"{path}: ARCHITECTURE.md's table of rooms has no line for {room}")
            continue
        for number, target in included_files(path):
            other, tops = os.path.dirname(target), {path.split("/")[0], target.split("/")[0]}
            if order.get(other, -1) > order[room] or (len(tops) > 1 and tops <= set(PROCESSES)):
                wrong.append(f"{path}:{number}: {room} must not include {target}, which is above it")
    return wrong + [f"ARCHITECTURE.md: there is no room {room}" for room in order if room not in seen]


def check_folder_sizes():
    files = collections.Counter(os.path.dirname(path) for path in sources() + tables())
    return [f"{room}: {n} files; a folder holds at most {ROOM_FILES_MAX}" for room, n in files.items()
            if n > ROOM_FILES_MAX and room not in ROOMS_WITHOUT_MAX]


def check_guards():
    wrong = []
    for path in sources():
        guard = "WEIR_" + re.sub(r"[/.]", "_", path).upper()
        if path.endswith((".h", ".cuh")) and f"#ifndef {guard}\n#define {guard}\n" not in "\n".join(lines_of(path)):
            wrong.append(f"{path}: its include guard is {guard}")
    return wrong


def check_header_cycles():
    """Headers that include each other, straight or by others. Between rooms check_rooms finds them."""
    wrong, state = [], {}
    includes = {path: [target for _, target in included_files(path)] for path in sources() if path.endswith((".h", ".cuh"))}

    def visit(path, way):
        if state.get(path) == "open":
            wrong.append(" includes ".join(way[way.index(path):] + [path]))
        if path in state or path not in includes:
            return
        state[path] = "open"
        for target in includes[path]:
            visit(target, way + [path])
        state[path] = "done"

    for path in includes:
        visit(path, [])
    return wrong


def code_of(path):
    """The text without its comments, each line where it was."""
    return COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), "\n".join(lines_of(path)))


def check_declarations():
    """Else a room could call what is above it by a header that is below it."""
    wrong, defined = [], {}
    for path in sources():
        if path.endswith((".c", ".cu")) and path.split("/")[0] in TOPS:
            for found in DEFINITION.finditer(code_of(path)):
                if not re.search(r"\bstatic\b", found.group()):
                    defined.setdefault(found.group(1), set()).add(os.path.dirname(path))
    for path in sources():
        if not path.endswith((".h", ".cuh")) or path.split("/")[0] not in TOPS:
            continue
        for found in DECLARATION.finditer(code_of(path)):
            rooms_of = defined.get(found.group(1), {os.path.dirname(path)})
            if os.path.dirname(path) not in rooms_of and found.group(1) not in DECLARED_BELOW:
                wrong.append(f"{path}: {found.group(1)} is declared here, but defined in {', '.join(sorted(rooms_of))}")
    return wrong


def check_pure():
    wrong = []
    for path in sources():
        if path.startswith(PURE) and not path.startswith(IMPURE):
            wrong += [f"{path}:{number}: {target} has no place in a pure state machine"
                      for number, target in included_files(path) if target.startswith(EFFECTS)]
            wrong += [f"{path}: {word} has no place in a pure state machine" for word in EFFECT_HEADERS
                      if f"#include <{word}>" in lines_of(path)]
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


def check_tenants():
    """A new handler that is not given what it asks about by ask.c, or sees all tenants."""
    wrong = []
    for path in sources():
        if not path.startswith("server/coordinator/"):
            continue
        for number, line in enumerate(code_of(path).split("\n"), 1):
            if path.startswith(IMPURE) and NAMES.search(line) and NAMES_IN.get(path, "\n") not in line:
                wrong.append(f"{path}:{number}: what a request names is looked up by ask.c, which passes it on")
            if re.search(r"\bviewer_of_all\b", line) and "state/tenant." not in path and not OURSELVES.search(line):
                wrong.append(f"{path}:{number}: whoever asks sees what its certificate says: shell_viewer()")
    return wrong


def check_page():
    """What its Content-Security-Policy would refuse in the browser, or what puts text there as anything but text."""
    return [f"{path}:{number}: {found.group()} has no place in the page" for path in page_files(".js", ".css", ".html", ".svg")
            for number, line in enumerate(lines_of(path), 1) for found in PAGE_REFUSED.finditer(line.replace(SVG_NAME, ""))]


def check_clocks():
    return [f"{path}:{number}: waits and measures are by the monotonic clock (common/base/clock.h)" for path in sources()
            if path.startswith(TOPS) and path not in WALL_CLOCK_IN
            for number, line in enumerate(lines_of(path), 1) if re.search(r"\bCLOCK_REALTIME|\bgettimeofday\(", line)]


def check_sizes():
    wrong = [f"{path}: {len(lines_of(path))} lines; a script has at most {FILE_LINES_MAX}"
             for path in [*scripts(), *page_files(".js", ".css")] if len(lines_of(path)) > FILE_LINES_MAX]
    for path in sources():
        lines = lines_of(path)
        if len(lines) > FILE_LINES_MAX:
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


def parameters_of(text):
    """How many parameters there are between these parentheses of a definition."""
    depth, commas = 0, 0
    for letter in text:
        depth += (letter in "(<") - (letter in ")>")
        commas += letter == "," and depth == 0
    return commas + 1 if text.strip() not in ("", "void") else 0


def check_parameters():
    wrong = []
    for path in sources():
        if path.startswith(FOREIGN_SIGNATURES):
            continue
        text = code_of(path)
        for found in DEFINITION.finditer(text):
            number = parameters_of(found.group(2))
            if number > PARAMETERS_MAX and "__global__" not in found.group() and "__device__" not in found.group():
                wrong.append(f"{path}:{text.count(chr(10), 0, found.start()) + 1}: {found.group(1)} has {number} parameters; "
                             f"more than {PARAMETERS_MAX} are a struct")
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
               "--template={file}:{line}: {severity}: {message} [{id}]", "-I.", *TOPS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stderr.splitlines() if done.returncode else []


CHECKS = [
    ("every file is formatted as .clang-format says", check_format),
    ("rooms include only what is below them", check_rooms),
    ("a folder holds at most forty files", check_folder_sizes),
    ("an include guard is its header's path", check_guards),
    ("functions are declared in the room that defines them", check_declarations),
    ("the coordinator's decisions stay pure", check_pure),
    ("headers do not include each other", check_header_cycles),
    ("what requests name is looked up as their callers see it", check_tenants),
    ("the dashboard's page is text, files of its own, and nothing inline", check_page),
    ("third-party headers stay in their place", check_third_party),
    ("nobody waits for the clock that people set", check_clocks),
    ("files and functions stay small", check_sizes),
    ("functions take few parameters", check_parameters),
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
