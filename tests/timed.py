"""Which tests are timed: how fast the machine is could matter to them, as they look at processes or threads that go on
meanwhile, or wait. A test that only runs `weir` to its end, however many processes that starts, is not timed.

It is read off the source: of a test in Python, what it and all that it uses of tests/ say; of a program in C, its file, the
headers beside it and below tests/ that it includes, and what those of tests/support declare."""
import ast
import functools
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = [os.path.join(ROOT, "tests", name) for name in ("integration", "gpu", "chaos", "parity")]  # of modules
PYTHON = re.compile(r"\bwait_for\(|\bkill\(|sleep\(|Cluster\(|Process\(|Popen\(|Thread\(|ThreadPoolExecutor\(|Shim\(")
C = re.compile(r"pthread_|\bfork\(|sleep\(")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


class Module:
    """A Python file: what its top level defines, by name, and what it imports, anywhere, as (module, name there)."""

    def __init__(self, path):
        with open(path) as file:
            text = file.read()
        self.lines, tree = text.splitlines(), ast.parse(text)
        self.defined, self.imported = {}, {}
        for node in tree.body:
            for name in ([node.name] if hasattr(node, "name") else
                         [target.id for target in ast.walk(node) if isinstance(target, ast.Name)
                          and isinstance(target.ctx, ast.Store)]):
                self.defined.setdefault(name, []).append(node)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self.imported.update({alias.asname or alias.name: (node.module, alias.name) for alias in node.names})
            elif isinstance(node, ast.Import):
                self.imported.update({alias.asname or alias.name: (alias.name, None) for alias in node.names})

    def text(self, node):
        return "\n".join(self.lines[node.lineno - 1:node.end_lineno])

    def used_by(self, node):
        """(module, name) of what a definition uses; None for the module: this one."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name):
                module, name = self.imported.get(inner.value.id, (None, ""))
                if name is None:
                    yield module, inner.attr
            elif isinstance(inner, ast.Name):
                yield self.imported.get(inner.id, (None, inner.id))


@functools.cache
def find_module(name):
    """None for those that are not ours."""
    paths = [os.path.join(folder, f"{name}.py") for folder in FOLDERS]
    return next((Module(path) for path in paths if os.path.exists(path)), None)


def is_timed(module, name, seen):
    """Whether a definition, or what it uses, is."""
    if (module, name) in seen:
        return False
    seen.add((module, name))
    for node in module.defined.get(name, []):
        if PYTHON.search(module.text(node)):
            return True
        for elsewhere, what in module.used_by(node):
            there = find_module(elsewhere) if elsewhere else module
            if there and what and is_timed(there, what, seen):
                return True
    return False


def c_source(path, seen):
    path = os.path.normpath(path)
    if path in seen or not os.path.exists(os.path.join(ROOT, path)):
        return ""
    seen.add(path)
    with open(os.path.join(ROOT, path)) as file:
        text = file.read()
    names = [name if name.startswith("tests/") else os.path.join(os.path.dirname(path), name)
             for name in INCLUDE.findall(text)]
    if path.startswith("tests/support/") and path.endswith(".h"):
        names.append(path[:-2] + ".c")
    return text + "".join(c_source(name, seen) for name in names)


def timed_tests(program):
    """None if none of a program's is. Else the names of those that are; of a program in C, which runs as a whole: []."""
    path = "tests/" + program.split()[0].rpartition("tests/")[2]
    if not path.endswith(".py"):
        return [] if C.search(c_source(path + ".c", set())) else None
    module = Module(os.path.join(ROOT, path))
    return [name for name in module.defined if name.startswith("test_") and is_timed(module, name, set())] or None


def main():
    """Lists the timed tests of the programs below tests/."""
    for base, _, names in sorted(os.walk(os.path.join(ROOT, "tests"))):
        for name in sorted(names):
            stem, kind = os.path.splitext(name)
            path = os.path.relpath(os.path.join(base, name), ROOT)
            tests = None
            if kind == ".py" and stem.startswith("test_"):
                tests = timed_tests(path)
            elif kind == ".c" and stem.endswith("_test"):
                tests = timed_tests(path[:-2])
            if tests is not None:
                print(path, *tests)


if __name__ == "__main__":
    main()
