"""No document names what is not there: relative links and their #anchors, paths in backquotes and in pictures, and
paths in the comments of sources.

A path may hold wildcards (`redis*.c`) and placeholders (`model/ops/NAME.c`): then some file must match. A bare file
name (`round.c`) must be somewhere in the tree. What a build or a run makes (build/, weir-out/) is not looked for, but
that a test under build/tests/ has a source."""
import fnmatch
import functools
import os
import re
import subprocess

from harness import ROOT, main

SOURCES = ("c", "h", "cu", "cuh", "def", "proto", "py", "sh", "mk", "md")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(NAME|KIND|X)(?![A-Za-z])")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|^\s*\[[^\]]+\]:\s*(\S+)")
FENCE = re.compile(r"^\s*(```+|~~~+)\s*(\w*)")
MADE_BY_RUNS = ("logs/", "store/")  # in the folder that `weir train` leaves
SYSTEM = ("onnx.proto",)  # of a package
PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/", "examples/README.md")


@functools.lru_cache(maxsize=None)
def tree():
    """(files, folders) of the repository, as paths from its root; folders without a slash at the end."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                            check=True).stdout.splitlines()
    files = {path for path in listed if os.path.exists(os.path.join(ROOT, path))}
    folders = set()
    for path in files:
        while "/" in path:
            path = path.rpartition("/")[0]
            folders.add(path)
    return files, folders


@functools.lru_cache(maxsize=None)
def names():
    return {path.rpartition("/")[2] for path in tree()[0]}, {path.rpartition("/")[2] for path in tree()[1]}


def documents(wanted=("",)):
    return sorted(path for path in tree()[0] if path.endswith(".md") and path.startswith(tuple(wanted)))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def lines_of(text):
    """(number, line, language of the fence that it is in); None outside of fences, "" in one that names none."""
    fence = language = None
    for number, line in enumerate(text.splitlines(), 1):
        mark = FENCE.match(line)
        if mark and fence is None:
            fence, language = mark.group(1), mark.group(2)
        elif mark and mark.group(1).startswith(fence) and not mark.group(2):
            fence = language = None
        else:
            yield number, line, language


@functools.lru_cache(maxsize=None)
def anchors(path):
    """What GitHub makes of the headings: lower case, only letters, digits, - and _, a hyphen for each space; the
    second of the same text ends in -1."""
    found, text = {}, read(path)
    for _, line, language in lines_of(text):
        heading = re.match(r"^ {0,3}#{1,6}\s+(.*?)\s*#*\s*$", line)
        if not heading or language is not None:
            continue
        shown = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", shown.replace("*", "")).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    slugs = {slug if again == 0 else f"{slug}-{again}" for slug, n in found.items() for again in range(n + 1)}
    return slugs | set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", text))


def wrong_link(path, target):
    """What is wrong with a link in the document; None: nothing."""
    if re.match(r"^[a-z][a-z0-9+.-]*:", target):
        return None
    place, _, anchor = target.partition("#")
    full = os.path.normpath(os.path.join(os.path.dirname(path), place)) if place else path
    if full not in tree()[0] and full not in tree()[1]:
        return f"there is no {full}"
    if anchor and full.endswith(".md") and anchor not in anchors(full):
        return f"{full} has no heading for #{anchor} (it has: {', '.join(sorted(anchors(full)))})"
    return None


def exists(path):
    """A path from the root, of a file or folder, maybe with wildcards or placeholders."""
    path = path.rstrip("/")
    if path in tree()[0] or path in tree()[1]:
        return True
    pattern = PLACEHOLDER.sub("*", path)
    return "*" in pattern and any(candidate.count("/") == pattern.count("/") and fnmatch.fnmatchcase(candidate, pattern)
                                  for part in tree() for candidate in part)


def named_somewhere(name):
    """A file name without a folder, or the last parts of a path."""
    if "/" not in name:
        pattern = PLACEHOLDER.sub("*", name)
        return name in names()[0] or ("*" in pattern and any(fnmatch.fnmatchcase(known, pattern) for known in names()[0]))
    return any(fnmatch.fnmatchcase(known, "*/" + PLACEHOLDER.sub("*", name)) for known in tree()[0])


def wrong_word(word):
    """What is wrong with one word of a span in backquotes; None: it names no path, or one that is there."""
    word = re.sub(r":\d+$", "", word.lstrip("\"'(").rstrip("\"'),;.…"))
    if not re.fullmatch(r"[\w.*-]+(?:/[\w.*-]+)*/?", word) or word in MADE_BY_RUNS or word in SYSTEM:
        return None
    top, _, rest = word.partition("/")
    has_extension = re.search(r"[\w*]\.(?:" + "|".join(SOURCES) + r")$", word)
    if word.startswith("build/tests/"):
        source = word[len("build/"):]
        return None if exists(source + ".c") or exists(source) else f"there is no {source}.c, of which it is made"
    if "/" in word and top in tree()[1]:
        return None if exists(word) else f"there is no {word}"
    if top in ("build", "weir-out"):
        return None
    if has_extension:
        return None if named_somewhere(word) else f"no file of the tree is called {word}"
    if word.endswith("/") and "/" not in word[:-1]:
        return None if word[:-1] in names()[1] else f"no folder of the tree is called {word}"
    return None


def words_of_document(path):
    """(line number, word): in backquotes, or in a picture, where only whole paths count."""
    for number, line, language in lines_of(read(path)):
        if language is None:
            for span in re.findall(r"`([^`\n]+)`", line):
                yield from ((number, word) for word in span.split())
        elif language == "":
            yield from ((number, word) for word in line.split() if word.partition("/")[0] in tree()[1])


def words_of_comments(path):
    """(line number, word) of whole paths in a source's comments, and of names in backquotes in those of a .proto."""
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda found: " " * len(found.group()), read(path))
    comments = re.compile(r"//[^\n]*" if path.endswith(".proto") else r"/\*.*?\*/|//[^\n]*", re.S)
    for comment in comments.finditer(text):
        for number, line in enumerate(comment.group().splitlines(), text.count("\n", 0, comment.start()) + 1):
            for word in re.findall(r"[\w.*-]+(?:/[\w.*-]+)+", line):
                if word.rstrip(".").rpartition(".")[2] in SOURCES and word.partition("/")[0] in tree()[1]:
                    yield number, word
            if path.endswith(".proto"):
                yield from ((number, word) for span in re.findall(r"`([^`]+)`", line) for word in span.split())


def report(wrong):
    assert not wrong, "\n" + "\n".join(wrong)


def test_links_of_documents_lead_somewhere():
    wrong, links = [], 0
    for path in documents():
        for number, line, language in lines_of(read(path)):
            if language is not None:
                continue
            for found in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                links += 1
                why = wrong_link(path, found[0] or found[1])
                wrong += [f"{path}:{number}: {found[0] or found[1]}: {why}"] if why else []
    assert links > 50, f"only {links} links were found"
    report(wrong)


def test_paths_in_documents_are_there():
    wrong, words = [], 0
    for path in documents(PAGES):
        for number, word in words_of_document(path):
            words += 1
            why = wrong_word(word)
            wrong += [f"{path}:{number}: {word}: {why}"] if why else []
    assert words > 1000, f"only {words} words were found"
    report(wrong)


def test_paths_in_comments_are_there():
    wrong, words = [], 0
    for path in sorted(tree()[0]):
        if not path.endswith((".c", ".h", ".cu", ".cuh", ".def", ".proto")):
            continue
        for number, word in words_of_comments(path):
            words += 1
            why = wrong_word(word)
            wrong += [f"{path}:{number}: {word}: {why}"] if why else []
    assert words > 50, f"only {words} paths were found"
    report(wrong)


def test_the_tests_of_threats_are_there():
    found = set()
    for path in tree()[0]:
        if path.startswith("tests/") and path.endswith((".py", ".c")):
            found |= set(re.findall(r"^(?:def|static void) (\w+)\(", read(path), re.MULTILINE))
    threats = read("docs/SECURITY.md").partition("\n## Threats\n")[2].partition("\nTests without a file")[0]
    rows = [row.split("|") for row in threats.splitlines() if row.startswith("| ")][2:]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[3])}
    assert len(rows) > 40, f"only {len(rows)} threats were found"
    assert named <= found, sorted(named - found)


main(globals())
