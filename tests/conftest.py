"""What tests of the command line share."""

from __future__ import annotations

import gc
import json
import struct
import sysconfig
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests import costs, rows, sweep, watchdog

ROOT = Path(__file__).resolve().parent.parent


class Ran:
    """What a run of the command gave."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> dict:
        assert self.err == ""
        return json.loads(self.out)

    @property
    def jsonl(self) -> list[dict]:
        assert self.err == ""
        return [json.loads(line) for line in self.out.split("\n")[:-1]]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run ``pparse`` with these arguments in this process."""
    from pparse.cli import main

    for name in ("NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def call(*words: object) -> Ran:
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Ran(code, *capsys.readouterr())

    return call


def safetensors(header: dict | bytes, data: bytes = b"") -> bytes:
    """Return a safetensors file with that header and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


@pytest.fixture
def model(tmp_path):
    """Write a safetensors file: ``model({name: (dtype, shape, bytes)})``; returns its path."""

    def write(tensors: dict, name: str = "model.safetensors", metadata: dict | None = None, cut: int = 0) -> Path:
        header: dict = {"__metadata__": metadata} if metadata is not None else {}
        data = b""
        for tensor, (dtype, shape, content) in tensors.items():
            begin, end = len(data), len(data) + len(content)
            header[tensor] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
            data += content
        whole = safetensors(header, data)
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(whole[: len(whole) - cut])
        return path

    return write


@pytest.fixture
def samples(monkeypatch) -> str:
    """Go to the root of the repository; the folder of the samples, from there."""
    monkeypatch.chdir(ROOT)
    return "docs/samples"


@pytest.fixture(scope="session")
def many(tmp_path_factory) -> Path:
    """A file of 21,000 tensors, more than `ls` sorts (SORT_UP_TO)."""
    return shuffled(tmp_path_factory.mktemp("many") / "many.safetensors", 21_000)


@pytest.fixture(scope="session")
def several(tmp_path_factory) -> Path:
    """A file of 6,000 tensors."""
    return shuffled(tmp_path_factory.mktemp("several") / "several.safetensors", 6_000)


def shuffled(path: Path, count: int) -> Path:
    """Write a file of so many tensors, in an order that is not that of their names."""
    header = {
        f"layers.{(number * 7919) % count}.weight": {"dtype": "U8", "shape": [1], "data_offsets": [number, number + 1]}
        for number in range(count)
    }
    path.write_bytes(safetensors(header, bytes(count)))
    return path


# -- how much is run -------------------------------------------------------------------------------------------------

# What --quick runs: the core, and of each format the file that says most in a second.
QUICK = (
    "architecture",
    "budget",
    "cli",
    "cli_check",
    "cli_get",
    "compared",
    "container_limit",
    "content",
    "cpb",
    "data",
    "dtype",
    "engine",
    "errors",
    "gzip_header",
    "json",
    "limits",
    "merger",
    "node",
    "paths",
    "proto_splitter",
    "protobuf",
    "reader",
    "recover_documents",
    "riegeli_fixtures",
    "riegeli_positions",
    "rows",
    "schema",
    "spliced",
    "range_status",
    "sweep",
    "tar",
    "tar_headers",
    "tensor",
    "tensorflow_tensors",
    "wire_kernel",
    "zip",
    "zip_records",
)
# Of the truth matrix: so many of the planned cases, and of the parser contract all.
TRUTH = 240
QUICK_TRUTH = 40
QUICK_FOLDERS = ("contract", "truth")


def pytest_addoption(parser):
    group = parser.getgroup("extent", "how much is run")
    group.addoption("--full", action="store_true", help="sweeps look at every place; takes some three times as long")
    group.addoption("--quick", action="store_true", help="a part that takes a minute")
    group.addoption("--sweep-offset", type=int, default=None, metavar="N", help="which places sweeps look at")
    group.addoption("--write-durations", action="store_true", help="record what the run costs (tests/durations.json)")
    group = parser.getgroup("truth", "the truth matrix (tests/truth)")
    group.addoption(
        "--truth-cases", type=int, default=None, metavar="N", help="run N cases or some more, and sum them up"
    )
    group.addoption("--truth-seed", type=int, default=0, metavar="S", help="draw the cases from this seed")
    group.addoption("--truth-case", action="append", default=[], metavar="CASE", help="run this case; repeatable")


def pytest_configure(config):
    # Workers are handed the options of the process that starts them: all collect the same.
    if config.option.sweep_offset is None:
        config.option.sweep_offset = sweep.commit_offset()
    sweep.offset = config.option.sweep_offset
    # A busy machine is slow, and no fault of the test.
    settings.register_profile("ours", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("ours")
    sweep.full = config.option.full
    sweep.thin = 3 if config.option.quick else 1
    rows.stop_at_first = config.option.maxfail == 1
    config.pluginmanager.register(costs.Costs(config), "costs")
    patience = watchdog.FULL_PATIENCE if sweep.full else watchdog.PATIENCE
    config.stash[WATCHDOG] = watchdog.Watchdog(patience)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Skip what needs a library that has no wheels for a Python without the GIL, or none for numpy 1."""
    from pparse.errors import UnsupportedError

    try:
        with item.config.stash[WATCHDOG].interruptible():
            return (yield)
    except UnsupportedError as error:
        import numpy as np

        old = np.__version__.startswith("1.") and error.package in ("numpy>=2", "ml_dtypes>=0.6")
        if error.package is None or not (old or sysconfig.get_config_var("Py_GIL_DISABLED")):
            raise
        pytest.skip(f"{error.package} is not there")


# -- the watchdog ----------------------------------------------------------------------------------------------------

WATCHDOG = pytest.StashKey[watchdog.Watchdog]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with item.config.stash[WATCHDOG].over(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    with item.config.stash[WATCHDOG].interruptible():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    with item.config.stash[WATCHDOG].interruptible():
        try:
            return (yield)
        finally:
            watchdog.fail_for_threads()


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node):
    node.config.stash[WATCHDOG].rearm()


class WatchedModule(pytest.Module):
    """A file of tests; its import may hang, too."""

    def collect(self):
        dog = self.config.stash[WATCHDOG]
        with dog.over(self.nodeid), dog.interruptible():
            return list(super().collect())


def pytest_pycollect_makemodule(module_path, parent):
    return WatchedModule.from_parent(parent, path=module_path)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session):
    with session.config.stash[WATCHDOG].over("the end of the session"):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    """Bound the end of the process, which waits for threads; a worker waits for tests of others, and is ended."""
    dog = config.stash.get(WATCHDOG, None)  # none if the options were refused
    if dog and not hasattr(config, "workerinput"):
        dog.end_after(dog.grace)


def extent(config) -> str:
    """Say what the sweeps of this run look at."""
    if config.option.full:
        return "sweeps look at every place (--full)"
    return f"sweeps look at some places, from offset {sweep.offset} (--sweep-offset {sweep.offset} repeats it)"


def pytest_sessionstart(session):
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        reporter.write_line(extent(session.config))


def pytest_ignore_collect(collection_path, config):
    if not config.option.quick or collection_path.suffix != ".py":
        return None
    name = collection_path.stem.removeprefix("test_")
    return (name not in QUICK and (collection_path.parent.name not in QUICK_FOLDERS or name == "oracle")) or None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Let every second worker begin with the last module.

    On a fresh clone pytest spends a sixth of a second on the asserts of each module, and keeps what it made of them:
    where two workers meet half-way, each finds the rest done.
    """
    report = yield
    worker = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if isinstance(collector, pytest.Directory) and report.passed and int(worker[2:]) % 2:
        report.result = report.result[::-1]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Put the tests into one order, whatever that of the modules was: all workers must have the same."""
    items.sort(key=lambda item: item.path)


def pytest_collection_finish(session):
    """Spare the collector what pytest itself holds: thousands of items, through which each `gc.collect` would go."""
    gc.collect()
    gc.freeze()


# -- the truth matrix: which cases are run, and what is told of them ------------------------------------------------


def pytest_generate_tests(metafunc):
    if "truth_case" not in metafunc.fixturenames:
        return
    from tests.truth.cases import ONCE_WRONG, choose, plan

    options = metafunc.config.option
    if options.truth_cases or options.truth_seed:
        cases = choose(options.truth_cases or 1, options.truth_seed)
    else:
        cases = options.truth_case or sweep.sample(plan(), QUICK_TRUTH if options.quick else TRUTH)
        if not options.truth_case:  # an item for each sample: collecting one costs as much as running some cases
            items: dict[str, list[str]] = {}
            for case in cases:
                items.setdefault(case.partition("/")[0], []).append(case)
            if not options.quick:
                items["once wrong"] = ONCE_WRONG.read_text().splitlines()
            metafunc.parametrize("truth_case", ["\n".join(item) for item in items.values()], ids=list(items))
            return
    metafunc.parametrize("truth_case", cases, ids=cases)


@pytest.fixture
def truth_tally(request):
    """Note what is wrong with a case, for the sum at the end."""

    def note(problems: list) -> None:
        clauses = "".join(sorted({letter for letter, _ in problems}))
        request.node.user_properties.append(("truth", clauses))

    return note


def pytest_terminal_summary(terminalreporter, config):
    if terminalreporter.stats.get("failed"):
        terminalreporter.line(extent(config))
    if config.option.truth_cases is None:
        return
    told = [
        (dict(report.user_properties)["truth"], report.duration)
        for reports in terminalreporter.stats.values()
        for report in reports
        if getattr(report, "when", "") == "call" and "truth" in dict(report.user_properties)
    ]
    seconds = sum(duration for _, duration in told)
    terminalreporter.section("truth matrix")
    terminalreporter.line(
        f"{len(told)} cases, {len(told) / max(seconds, 0.001):.1f} a second of work, "
        f"{sum(bool(clauses) for clauses, _ in told)} failed"
    )
    for letter in sorted(set("".join(clauses for clauses, _ in told))):
        terminalreporter.line(f"  clause {letter}: {sum(letter in clauses for clauses, _ in told)} cases")
