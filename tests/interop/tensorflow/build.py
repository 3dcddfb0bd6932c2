"""Find TensorFlow, and build the shim around its Merger with g++."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("merger_shim.cc")
WHERE = (
    "import importlib.util, importlib.metadata as m\n"
    "spec = importlib.util.find_spec('tensorflow')\n"
    "names = {'tensorflow', 'tensorflow_cpu'} & {d.metadata['Name'].replace('-', '_') for d in m.distributions()}\n"
    "print(spec.origin if spec else '', *(m.version(name) for name in sorted(names)), sep='\\n')\n"
)


class UnavailableError(Exception):
    """TensorFlow, or what it takes to call it, is not here; the text says what to do about it."""


@functools.cache
def tensorflow_python() -> str:
    """Return the Python that has TensorFlow: the one that PPARSE_TF_PYTHON names, or this one."""
    named = os.environ.get("PPARSE_TF_PYTHON")
    if named:
        return named
    if importlib.util.find_spec("tensorflow") is None:
        raise UnavailableError(
            "TensorFlow is not here: pip install --requirement tests/interop/requirements.txt, "
            "or name a Python that has it in PPARSE_TF_PYTHON"
        )
    return sys.executable


def shim(folder: Path) -> Path:
    """Return the shim, built into this folder if it is not there yet (~5 s).

    Raises UnavailableError without TensorFlow or g++, and where the sources do not build.
    """
    python = tensorflow_python()
    try:
        # -P: the folder that we stand in must not pass for a package.
        ran = subprocess.run([python, "-P", "-c", WHERE], capture_output=True, text=True)
    except OSError as error:
        raise UnavailableError(f"PPARSE_TF_PYTHON is no Python: {error}") from error
    origin, *versions = ran.stdout.split("\n")[:-1] or [""]
    if not origin:
        raise UnavailableError(f"{python} has no TensorFlow: {ran.stderr[-300:]}")
    home = Path(origin).parent
    key = hashlib.sha256(f"{home} {versions} ".encode() + SOURCE.read_bytes()).hexdigest()[:16]
    target = folder / f"merger-{key}.so"
    if target.exists():
        return target
    compiler = shutil.which("g++")
    if compiler is None:
        raise UnavailableError(
            "g++ is not here, and TensorFlow's Merger is called through C++ (Debian: apt install g++)"
        )
    fresh = target.with_suffix(f".{os.getpid()}")
    flags = ["-std=c++17", "-O1", "-w", "-fPIC", "-shared", "-DNDEBUG", f"-I{home / 'include'}"]
    libraries = [f"-L{home}", "-l:libtensorflow_framework.so.2", f"-Wl,-rpath,{home}"]
    built = subprocess.run([compiler, *flags, SOURCE, *libraries, "-o", fresh], capture_output=True, text=True)
    if built.returncode:
        raise UnavailableError(f"the shim does not build with {home}: {built.stderr[:2000]}")
    fresh.replace(target)
    return target
