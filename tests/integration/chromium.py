"""A headless Chromium, which scripts in the tests' environment drive: SCRIPT ADDRESS CHROMIUM [WORD]..."""
import os
import shutil
import subprocess

from harness import PATIENCE, PEER_PYTHON, Skip

NETWORKS = 5  # tests beside this one add and remove networks, and Chromium then breaks off what it loads


def command(script, address, *words):
    """What runs the script."""
    chromium = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)
    if not chromium:
        raise Skip("chromium-headless-shell is not installed")
    if not os.path.exists(PEER_PYTHON):
        raise Skip("build/venv could not be made (PyPI out of reach)")
    return [PEER_PYTHON, script, address, chromium, *words]


def drive(script, address, *words):
    """What the script prints; it must end well."""
    for _ in range(NETWORKS):
        done = subprocess.run(command(script, address, *words), capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
        if "ERR_NETWORK_CHANGED" not in done.stdout + done.stderr:
            break
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
