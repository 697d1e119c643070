"""What a shell makes of Weir: completion in real shells, man pages, and programs that were installed elsewhere."""
import glob
import os
import re
import shutil
import subprocess
import time

from harness import BUILD, PATIENCE, ROOT, Cluster, Folder, Skip, main, program, table_rows, wait_for, weir
from terminal import Terminal

COMMANDS = table_rows("client/command.def", "COMMAND")
PLACES = {"bash": "share/bash-completion/completions/weir", "zsh": "share/zsh/site-functions/_weir",
          "fish": "share/fish/vendor_completions.d/weir.fish"}
AGAIN_SECONDS = 5  # after which Tab is pressed once more


def need(tool):
    if not shutil.which(tool):
        raise Skip(f"{tool} is not installed")


def candidates(*words, **environment):
    """What Weir offers for the last word."""
    done = weir("complete", "words", "--", *words, env={**os.environ, **environment})
    assert not done.stderr, done.stderr
    return [line.split("\t")[0] for line in done.stdout.splitlines()]


def small_run(folder, cluster):
    """The id of a run that waits for workers."""
    folder.small_data(48, 24)
    spec = folder.small_spec(folder.model("mlp", "--hidden", 4), 2, 4, 4)
    return weir("submit", spec, "--coordinator", cluster.address).stdout.strip()


def test_every_command_and_option_is_offered():
    nowhere = {"WEIR_COORDINATOR": "127.0.0.1:1"}
    assert sorted(candidates("")) == sorted([*COMMANDS, "help"])
    assert candidates("checkp") == ["checkpoints"]
    assert sorted(candidates("help", "")) == sorted(COMMANDS)
    for command in COMMANDS:
        page = weir("help", command).stdout
        options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)", page.partition("\noptions:\n")[2], re.M)
        assert sorted(candidates(command, "--")) == sorted(options), command
    assert {"status", "watch", "best", ":files"} <= set(candidates("sweep", "", **nowhere))
    assert "--csv" in candidates("sweep", "status", "--c") and "--csv" not in candidates("sweep", "watch", "--c", **nowhere)
    assert candidates("train", "--out", "x") == [":files"] and candidates("train", "spec.yaml", "--force", "--o") == ["--out"]
    assert candidates("complete", "") == ["bash", "zsh", "fish"]
    assert candidates("nothing", "") == [], "no command"
    assert candidates("status", "", **nowhere) == [], "no coordinator"
    assert candidates("status", "", WEIR_COORDINATOR="no address") == candidates("status", "", WEIR_TLS="/nowhere") == []


def test_runs_workers_and_servers_of_the_cluster_are_offered():
    with Folder() as folder, Cluster(folder, servers=2, workers=0) as cluster:
        run = small_run(folder, cluster)
        at = {"WEIR_COORDINATOR": cluster.address}
        servers = sorted(server["id"] for server in cluster.json("servers"))

        def offers(wanted, *words, **environment):
            """Whoever types is not kept waiting for long: nothing is offered where the coordinator is slow to answer."""
            found = wait_for(lambda: candidates(*words, **environment), f"what is offered for {words}")
            assert sorted(found) == wanted, (words, found)
        offers([run], "status", "", **at)
        offers([run], "cancel", "sma", **at)
        offers([run], "status", "--json", "--coordinator", cluster.address, "")
        offers([run], "gc", run, "", **at)
        assert candidates("status", run, "", **at) == []
        offers(servers, "drain", "", **at)
        assert candidates("logs", "x", **at) == [":files"]


def typed(shell, script, line, wanted, *command, **environment):
    """The line is completed to what is wanted when Tab is pressed in a real shell."""
    need(shell)
    with Terminal(40, 100, shell, *command, PS1="$ ", PROMPT="$ ", **environment) as terminal:
        os.write(terminal.controller, script.encode() + b"\necho is-'ready'\n")
        terminal.shows("is-ready")
        os.write(terminal.controller, line.encode() + b"\t")

        def is_there():
            terminal.take()
            if wanted in re.sub("\033\\[[0-9;?]*[A-Za-z]|[\a\b]", "", terminal.text()):
                return True
            nonlocal again
            if time.monotonic() > again:  # a coordinator that is slow to answer has nothing offered
                os.write(terminal.controller, b"\t")
                again += AGAIN_SECONDS
            return False
        again = time.monotonic() + AGAIN_SECONDS
        wait_for(is_there, f"'{wanted}' in {shell}")


def test_bash_and_zsh_complete_commands_options_files_and_runs():
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        run = small_run(folder, cluster)
        folder.file("some-spec.yaml", "name: x\n")
        at = {"WEIR_COORDINATOR": cluster.address, "PATH": f"{BUILD}:{os.environ['PATH']}", "HOME": folder.path}
        bash = f'cd {folder.path}; eval "$(weir complete bash)"'
        zsh = f'cd {folder.path}; autoload -U compinit; compinit -u -D; eval "$(weir complete zsh)"'
        for line, wanted in (("weir checkp", "weir checkpoints"), ("weir train --thr", "weir train --threads"),
                             ("weir train some", "weir train some-spec.yaml"), ("weir status sm", f"weir status {run}")):
            typed("bash", bash, line, wanted, "--norc", "--noprofile", "-i", **at)
            if shutil.which("zsh"):
                typed("zsh", zsh, line, wanted, "-f", "-i", **at)


def test_fish_completes_commands_options_files_and_runs():
    need("fish")
    with Folder() as folder, Cluster(folder, servers=0, workers=0) as cluster:
        run = small_run(folder, cluster)
        folder.file("some-spec.yaml", "name: x\n")
        environment = {**os.environ, "WEIR_COORDINATOR": cluster.address, "PATH": f"{BUILD}:{os.environ['PATH']}",
                       "HOME": folder.path}
        for line, wanted in (("weir checkp", "checkpoints"), ("weir train --thr", "--threads"),
                             ("weir train some", "some-spec.yaml"), ("weir status sm", run)):
            def is_offered(line=line, wanted=wanted):
                done = subprocess.run(["fish", "--no-config", "-c", f"weir complete fish | source; complete -C '{line}'"], text=True,
                                      capture_output=True, check=False, timeout=PATIENCE, cwd=folder.path, env=environment)
                return wanted in [found.split("\t")[0] for found in done.stdout.splitlines()]
            wait_for(is_offered, f"'{wanted}' in fish")


def test_the_commands_are_listed_in_groups():
    page = weir("help").stdout
    with open(os.path.join(ROOT, "client", "command.def")) as file:
        groups = re.split(r'^COMMANDS\("(.*)"\)$', file.read(), flags=re.M)[1:]
    assert len(groups) >= 8
    for title, rows in zip(groups[::2], groups[1::2]):
        listed = page.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert [line.split()[0] for line in listed.splitlines()] == re.findall(r"^COMMAND\((\w+)\)", rows, re.M), title


def make(*arguments):
    """Of what is built; nothing of a make that runs the tests is heeded, as its SAN, which B has already."""
    environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
    done = subprocess.run(["make", "--no-print-directory", f"B={os.path.relpath(BUILD, ROOT)}", *arguments], cwd=ROOT, text=True,
                          capture_output=True, check=False, timeout=PATIENCE * 3, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def files_below(folder):
    return {os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names}


def test_what_was_installed_trains_completes_and_is_removed():
    with Folder() as folder:
        stage, home = folder.file("stage"), folder.file("stage/opt/weir")
        make("install-built", f"DESTDIR={stage}", "PREFIX=/opt/weir")
        found = files_below(home)
        assert {"bin/weir", "bin/weir-server", "bin/weir-worker", *PLACES.values(), "share/man/man1/weir.1",
                "share/man/man1/weir-server.1", "share/man/man1/weir-worker.1", "share/man/man1/weir-sweep-best.1",
                *(f"share/man/man1/weir-{command}.1" for command in COMMANDS)} <= found, found
        assert ("lib/weir/weir-cuda.so" in found) == os.path.exists(os.path.join(BUILD, "weir-cuda.so"))
        for shell, place in PLACES.items():
            with open(os.path.join(home, place)) as script:
                assert script.read() == weir("complete", shell).stdout
        folder.small_data(48, 24)
        spec = folder.small_spec(folder.model("mlp", "--hidden", 4), 2, 4, 4)
        done = subprocess.run(["weir", "train", spec, "--threads", "1", "--out", "out"], cwd=folder.path, text=True, check=False,
                              capture_output=True, env={**os.environ, "PATH": f"{home}/bin:/usr/bin:/bin"}, timeout=PATIENCE * 3)
        assert done.returncode == 0 and "sha256" in done.stdout, done.stdout + done.stderr
        make("uninstall", f"DESTDIR={stage}", "PREFIX=/opt/weir")
        assert not files_below(stage), files_below(stage)


def man_pages(folder):
    """Of all programs, as `make man` writes them."""
    weir("help", "--man", folder)
    for name in ("weir-server", "weir-worker"):
        with open(os.path.join(folder, name + ".1"), "w") as page:
            subprocess.run([program(name), "--man"], stdout=page, check=True, timeout=PATIENCE)
    return sorted(glob.glob(os.path.join(folder, "*.1")))


def test_man_pages_are_sound_and_say_what_help_says():
    need("mandoc")
    with Folder() as folder:
        pages = man_pages(folder.path)
        assert len(pages) > len(COMMANDS) + 10
        lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", *pages], capture_output=True, text=True, check=False,
                              timeout=PATIENCE)
        assert not lint.stdout and not lint.stderr, lint.stdout[:3000] + lint.stderr
        for page in pages:
            words = os.path.basename(page)[:-2].split("-")
            command = (["weir", "help", *words[1:]] if words[1:] not in (["server"], ["worker"]) else
                       ["-".join(words), "--help"])
            help_text = subprocess.run([program(command[0]), *command[1:]], capture_output=True, text=True, check=True).stdout
            shown = subprocess.run(["mandoc", "-T", "ascii", page], capture_output=True, text=True, check=True).stdout
            shown = re.sub(".\b", "", shown)
            plain = re.sub(r"[\s`'\"]+|\u2018|\u2019", "", shown).lower()
            for line in help_text.splitlines()[2:]:
                if not line.endswith(":"):
                    assert re.sub(r"[\s`'\"]+", "", line.removeprefix("usage:")).lower() in plain, (page, line)


def test_wrong_uses_are_refused_by_name():
    for arguments, word in ((["complete", "tcsh"], "tcsh"), (["complete", "bash", "more"], "more"), (["complete"], "bash|zsh|fish"),
                            (["help", "--man"], "folder"), (["help", "--man", "/nowhere/at/all"], "/nowhere/at/all")):
        refused = weir(*arguments, status=2).stderr
        assert word in refused and refused.count("\n") == 1, refused


if __name__ == "__main__":
    main(globals())
