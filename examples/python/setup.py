"""The package's messages are made when it is built, by protoc of grpcio-tools, from the files that Weir itself is built of."""
import atexit
import pathlib
import re
import shutil
import tempfile

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "proto"
PACKAGE = "weir/pb"


def generate(out):
    """Writes modules, stubs and types of all messages below the folder."""
    from grpc_tools import protoc
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work, PACKAGE)
        folder.mkdir(parents=True)
        for path in PROTO.glob("*.proto"):  # as parts of the package: `spec` alone is anybody's name
            text = re.sub(r'^import "(\w+\.proto)"', rf'import "{PACKAGE}/\1"', path.read_text(), flags=re.MULTILINE)
            (folder / path.name).write_text(text)
        shutil.copy(HERE / "src" / PACKAGE / "onnx_file.proto", folder)
        files = [f"{PACKAGE}/{path.name}" for path in sorted(folder.glob("*.proto"))]
        if protoc.main(["protoc", f"-I{work}", f"--python_out={out}", f"--pyi_out={out}", f"--grpc_python_out={out}", *files]):
            raise SystemExit("protoc refused the messages; what it said is above")


class Build(build_py):
    def run(self):
        super().run()
        generate(self.build_lib)


# Nothing that is made on the way stays in the source tree.
WORK = tempfile.mkdtemp(prefix="weir-build-")
atexit.register(shutil.rmtree, WORK, ignore_errors=True)
setup(cmdclass={"build_py": Build}, options={"build": {"build_base": WORK}, "egg_info": {"egg_base": WORK}})
