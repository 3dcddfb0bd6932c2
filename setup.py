"""What pyproject.toml cannot say: the packages, as they are found, and the optional C extensions.

Without a compiler the build succeeds and pparse hashes in pure Python. ``PPARSE_PURE_PYTHON=1`` leaves the extensions
out, which makes a wheel for every platform.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile

from setuptools import Extension, find_packages, setup

WANTED = sys.implementation.name == "cpython" and os.environ.get("PPARSE_PURE_PYTHON", "0") in ("", "0")
# One binary for the Python that builds it (3.11 is the first that can) and all later ones, not for earlier ones: its
# headers may take None for immortal. Builds without the GIL know no stable ABI.
STABLE = WANTED and not sysconfig.get_config_var("Py_GIL_DISABLED")

# By the names under which they are imported; each folder in them with an `__init__.py` is a package.
FOLDERS = {"pparse": "pparse", "pparse.parsers": "parsers", "pparse.viewers": "viewers", "pparse.protos": "protos"}
packages = [
    f"{top}.{name}".removesuffix(".") for top, folder in FOLDERS.items() for name in ("", *find_packages(folder))
]

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
# Not in a folder "build" of the source tree: whatever is imported there later would find the copies in it.
build_base = tempfile.mkdtemp(prefix="pparse-build-")
atexit.register(shutil.rmtree, build_base, ignore_errors=True)
options = {"build": {"build_base": build_base}}
if STABLE:
    options["bdist_wheel"] = {"py_limited_api": f"cp3{sys.version_info.minor}"}
setup(packages=packages, package_dir=FOLDERS, ext_modules=extensions if WANTED else [], options=options)
