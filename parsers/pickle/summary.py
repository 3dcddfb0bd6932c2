"""What ``info`` says of a pickle."""

from __future__ import annotations

import sys

from pparse.display.text import shorten
from pparse.tree.listing import GlobalUse, global_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from pparse.parsers.pickle.parser import PickleParser

# The most different globals that are kept (five times as many of those that could run something); characters of a name.
_MOST_KEPT: Final = 20_000
_LONGEST: Final = 200
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


def uses(parser: PickleParser) -> list[GlobalUse]:
    """Return the globals that the pickles name, each once."""
    found: dict[str, GlobalUse] = {}
    for at, name in parser.global_names():
        shown = shorten(name, _LONGEST)
        known = found.get(shown)
        if known is not None:
            known.count += 1
        elif len(found) < (_MOST_KEPT if rank(name) else 5 * _MOST_KEPT):
            found[shown] = GlobalUse(shown, 1, at, rank(name))
    return list(found.values())


def details(parser: PickleParser) -> Iterator[tuple[str, str]]:
    """Yield labels and texts: the number of pickles, the protocol of the first, and the globals that they name."""
    starts = parser.starts
    if len(starts) > 1:
        yield "pickles", f"{len(starts):,}"
    head = parser.result.extraction.data.pread(starts[0], 2) if starts else b""
    yield "protocol", str(head[1]) if len(head) == 2 and head[0] == 0x80 else "0 or 1"
    found = list(parser.globals())
    yield from global_lines(found)
    if not found:
        yield "globals", "none"
