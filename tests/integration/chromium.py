"""A headless Chromium, which scripts in the tests' environment drive: SCRIPT ADDRESS CHROMIUM [WORD]..."""
import os
import shutil
import subprocess

from harness import PATIENCE, PEER_PYTHON, Skip


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
    done = subprocess.run(command(script, address, *words), capture_output=True, text=True, timeout=PATIENCE * 3, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout
