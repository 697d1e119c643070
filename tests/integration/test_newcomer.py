"""A cluster of two machines, secured as README says: by its own commands, each on the machine that it names."""
import json
import os
import re
import shlex
import shutil
import subprocess

import network
from harness import PATIENCE, ROOT, Folder, Process, main, program, start_announced, wait_for
from network import Network
from test_tls import DATA_ROOT, PREFACE, undisturbed, write_spec

SECURING = ("weir certs", "scp ", "export ")


def commands_of_readme():
    """[(number of the machine, command)] of the first block of "A cluster", without comments."""
    with open(os.path.join(ROOT, "README.md")) as readme:
        section = readme.read().partition("\n## A cluster\n")[2]
    machine, found = None, []
    for line in re.search("```sh\n(.*?)```", section, re.DOTALL).group(1).splitlines():
        named = re.match("# on HOST([12])", line)
        machine = int(named.group(1)) if named else machine
        if line and not line.startswith("#"):
            found.append((machine, line.partition("  #")[0].strip()))
    return found


class Two:
    """Machines 1 and 2, each with a folder in which the commands run, and with what was exported there."""

    def __init__(self, folder, net):
        self.net, self.folders, self.exported, self.started = net, {}, {1: {}, 2: {}}, []
        for number in (1, 2):
            self.folders[number] = folder.file(f"machine{number}")
            os.mkdir(self.folders[number])

    def options(self, number):
        environment = {name: value for name, value in os.environ.items() if name not in ("WEIR_INSECURE", "WEIR_DATA_ROOT")}
        return {"cwd": self.folders[number], "env": {**environment, **self.exported[number]},
                "preexec_fn": self.net.machines[number - 1].enter}

    def words(self, number, command):
        for host in (1, 2):
            command = command.replace(f"HOST{host}", self.net.machines[host - 1].address)
        command = command.replace("/srv/data", DATA_ROOT.name).replace("/srv/weir", self.folders[number] + "/store")
        first, *others = shlex.split(command)
        return [program(first) if first.startswith("weir") else first, *others]

    def run(self, number, command):
        """Of a program that ends: its exit status and what it said. Others go on."""
        words = self.words(number, command)
        if words[0] == "scp":
            source, (host, target) = words[2], words[3].split(":")
            other = [machine.address for machine in self.net.machines].index(host) + 1
            shutil.copytree(os.path.join(self.folders[number], source), os.path.join(self.folders[other], target))
        elif words[0] == "export":
            self.exported[number].update(word.split("=") for word in words[1:])
        elif os.path.basename(words[0]) == "weir-server":
            self.started.append(start_announced(*words, **self.options(number))[0])
        elif os.path.basename(words[0]) == "weir-worker":
            self.started.append(Process(*words, **self.options(number)))
        else:
            return subprocess.run(words, capture_output=True, text=True, timeout=3 * PATIENCE, check=False, **self.options(number))
        return None


def test_two_machines_are_secured_by_three_commands_of_readme():
    expected = undisturbed()
    with Network(machines=3) as net, Folder() as folder:
        two, commands = Two(folder, net), commands_of_readme()
        write_spec(folder)
        shutil.copy(folder.file("spec.yaml"), two.folders[1])
        assert sum(any(word in command for word in SECURING) for _, command in commands) <= 3, commands
        assert {number for number, _ in commands} == {1, 2}, commands
        for number, command in commands:
            done = two.run(number, command)
            assert not done or done.returncode == 0, (command, done)
        run = json.loads(two.run(1, f"weir status {done.stdout.strip()} --json").stdout)
        assert run["weights_sha256"] == expected, run
        assert len(two.started) == 2 and all(" tls=1 " in process.output() for process in two.started[:1])
        address = two.exported[1]["WEIR_COORDINATOR"]
        stranger = {"preexec_fn": net.machines[2].enter, "capture_output": True, "timeout": PATIENCE, "check": False}
        for options, status in (((), 2), (("--insecure",), 3)):
            assert subprocess.run([program("weir"), "runs", "--coordinator", address, *options], env={}, **stranger).returncode == status
        said = subprocess.run(["openssl", "s_client", "-connect", address, "-alpn", "h2", "-quiet", "-no_ign_eof"], input=PREFACE, **stranger)
        assert said.stdout == b"", said
        for process in two.started:
            process.__exit__()


if __name__ == "__main__":
    network.enter()
    main(globals())
