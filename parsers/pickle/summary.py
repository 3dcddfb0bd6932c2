"""Which globals that a pickle names are odd in a file of data."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

# Modules whose functions start programs, read or write files, reach out, or make code, by their first name; each
# between spaces.
_RUNNING: Final = (
    " __builtin__ __main__ _operator _pickle _posixsubprocess _thread asyncio bdb builtins cProfile cloudpickle code"
    " codeop commands concurrent ctypes dill distutils ensurepip ftplib functools glob http idlelib imaplib imp"
    " importlib inspect io linecache logging marshal mmap multiprocessing nt ntpath operator os pdb pickle pip"
    " pkg_resources pkgutil platform popen2 poplib posix posixpath profile pty pydoc runpy setuptools shelve shutil"
    " signal site smtplib socket socketserver sqlite3 subprocess sys tarfile tempfile test threading timeit trace"
    " traceback types urllib urllib2 venv webbrowser xmlrpc zipfile zipimport "
)
# What of them picklers name for plain data; and other modules of Python that they name.
_ORDINARY: Final = {
    "builtins": " bool bytearray bytes complex dict float frozenset int list object range set slice str tuple ",
    "__builtin__": " bool bytearray bytes complex dict float frozenset int list long object set slice str tuple unicode"
    " xrange ",
    "types": " SimpleNamespace ",
    "functools": " partial ",
}
_PLAIN: Final = (
    " _codecs array calendar collections copy_reg copyreg datetime decimal enum fractions ipaddress numbers pathlib re"
    " string uuid zoneinfo "
)


def rank(name: str) -> int:
    """Return how odd a global of a file of data is: 0, it could run something; 1, it is odd; 2, it is ordinary."""
    module, _, last = name.partition(".")
    if f" {module} " in _RUNNING:
        return 2 if f" {last} " in _ORDINARY.get(module, "") else 0
    odd = module in sys.stdlib_module_names and f" {module} " not in _PLAIN
    return 1 if odd or name == "?" else 2
