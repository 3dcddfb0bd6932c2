"""What pyproject.toml cannot say: the packages, as they are found, and what is compiled.

Without a compiler the build succeeds and pparse hashes in pure Python. ``PPARSE_PURE_PYTHON=1`` leaves extensions
out, which makes a wheel for every platform; ``PPARSE_COMPILE=1`` also compiles the modules of `COMPILED` by mypyc, for
the Python that builds, in some minutes (``make compile``).
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext


def asked(name: str) -> bool:
    """Whether a variable of the environment is set, and not to 0."""
    return os.environ.get(name, "0") not in ("", "0")


WANTED = sys.implementation.name == "cpython" and not asked("PPARSE_PURE_PYTHON")
COMPILE = WANTED and asked("PPARSE_COMPILE")
# One binary for the Python that builds it (3.11 is the first that can) and all later ones, not for earlier ones: its
# headers may take None for immortal. Builds without the GIL know no stable ABI; neither does mypyc.
STABLE = WANTED and not sysconfig.get_config_var("Py_GIL_DISABLED")

# By the names under which they are imported; each folder in them with an `__init__.py` is a package.
FOLDERS = {"pparse": "pparse", "pparse.parsers": "parsers", "pparse.viewers": "viewers", "pparse.protos": "protos"}
packages = [
    f"{top}.{name}".removesuffix(".") for top, folder in FOLDERS.items() for name in ("", *find_packages(folder))
]

# Modules of loops over bytes and values that gain from it. None holds a class that a module outside the list derives
# from, that is referred to weakly, or that is made with arguments; those that hash are C already. What is a bool or an
# int by one expression becomes an int: `make compile` tests that no value does.
COMPILED = (
    "pparse.kernels.deflate_tokens",
    "pparse.kernels.json_fold",
    "pparse.kernels.json_numpy",
    "pparse.kernels.lz4",
    "pparse.kernels.msgpack_skip",
    "pparse.kernels.packed",
    "pparse.kernels.pickle_scan",
    "pparse.kernels.python_literal",
    "pparse.kernels.riegeli",
    "pparse.kernels.snappy",
    "pparse.kernels.table_block",
    "pparse.kernels.text_starts",
    "pparse.kernels.varint",
    "pparse.kernels.wire",
    "pparse.kernels.wire_guess",
    "pparse.parsers.json.text",
    "pparse.parsers.json.walk",
    "pparse.parsers.msgpack.flax",
    "pparse.parsers.pickle.values",
    "pparse.parsers.protobuf.check",
)
# Types are checked elsewhere (``make lint``), with the packages that are not there in a build.
MYPY = """
[mypy]
follow_imports = silent
ignore_missing_imports = true
"""

extensions = [
    Extension(
        f"pparse.kernels.{name}",
        [f"pparse/kernels/{name}.c"],
        define_macros=[("Py_LIMITED_API", f"0x03{sys.version_info.minor:02X}0000")] if STABLE else [],
        py_limited_api=STABLE,
        optional=True,
    )
    for name in ("_highway", "_farmhash", "_crc32c")
]


def temporary() -> str:
    """Return a new folder, which goes with this process."""
    folder = tempfile.mkdtemp(prefix="pparse-build-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class BuildExtensions(build_ext):
    """Also compiles `COMPILED`: not before, since mypyc is installed for a build only."""

    def finalize_options(self) -> None:
        """Add them to the extensions."""
        if COMPILE and not self.editable_mode:
            self.distribution.ext_modules += compiled()
        super().finalize_options()


def compiled() -> list[Extension]:
    """Return the extensions that mypyc makes of `COMPILED`, in a tree where each folder has the place of its name."""
    from mypyc.build import mypycify

    here, tree = Path.cwd(), Path(temporary())
    for name, folder in FOLDERS.items():
        shutil.copytree(here / folder, tree / name.replace(".", "/"), ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    (tree / "mypy.ini").write_text(MYPY, encoding="utf-8")
    os.chdir(tree)
    try:
        paths = [f"{name.replace('.', '/')}.py" for name in COMPILED]
        made = mypycify(
            ["--config-file", "mypy.ini", *paths], separate=True, debug_level="0", target_dir=str(tree / "c")
        )
    finally:
        os.chdir(here)
    for extension in made:
        extension.sources = [str(tree / source) for source in extension.sources]
    return made


# Not in a folder "build" of the source tree: whatever is imported there later would find the copies in it.
options = {"build": {"build_base": temporary()}}
# Completions and man pages, which a release makes first (docs/make_shell_files.py).
shared: dict[str, list[str]] = {}
for path in sorted(Path("share").rglob("*")):
    if path.is_file():
        shared.setdefault(path.parent.as_posix(), []).append(path.as_posix())
if STABLE and not COMPILE:
    options["bdist_wheel"] = {"py_limited_api": f"cp3{sys.version_info.minor}"}
setup(
    packages=packages,
    package_dir=FOLDERS,
    data_files=list(shared.items()),
    ext_modules=extensions if WANTED else [],
    cmdclass={"build_ext": BuildExtensions},
    setup_requires=["mypy[mypyc]>=2.4"] if COMPILE else [],
    options=options,
)
