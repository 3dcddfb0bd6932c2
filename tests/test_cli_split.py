"""``pparse split`` and ``pparse merge``: what they write and say, what they refuse, exit codes; as processes, too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig

import pytest

from pparse.cli import merge as merge_command
from pparse.proto_splitter.stream_merge import MergeReport
from pparse.protos import descriptor_set, message_class
from pparse.riegeli import RecordReader
from tests.splitter_samples import make_graph_def_with_constant_nodes
from tests.test_splitter_folders import saved_model

COMMAND = shutil.which("pparse", path=sysconfig.get_path("scripts"))
GRAPH = "tensorflow.GraphDef"
STRING_NODE = "tensorflow.proto_splitter_testdata.StringNode"
StringNode = message_class(STRING_NODE)


@pytest.fixture
def graph(tmp_path, monkeypatch):
    """A GraphDef of 9 KB in ``graph.pb``, in the folder that we stand in."""
    monkeypatch.chdir(tmp_path)
    raw = make_graph_def_with_constant_nodes([100, 9000, 100]).SerializeToString(deterministic=True)
    (tmp_path / "graph.pb").write_bytes(raw)
    return raw


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A SavedModel folder ``model``, in the folder that we stand in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model" / "assets").mkdir(parents=True)
    (tmp_path / "model" / "saved_model.pb").write_bytes(saved_model().SerializeToString(deterministic=True))
    (tmp_path / "model" / "assets" / "words.txt").write_text("a\nb\n")
    return tmp_path / "model"


def names(folder="."):
    return sorted(os.listdir(folder))


# -- files -----------------------------------------------------------------------------------------------------------


def test_there_and_back(run, graph):
    ran = run("split", "graph.pb", "-o", "out", "--max-size", "4KiB", "--compression", "uncompressed")
    assert (ran.code, ran.err) == (0, "")
    (line,) = ran.lines
    assert line.startswith(
        f"out.cpb: {GRAPH}, 9.0 KiB, in 2 chunks, the largest 8.7 KiB (limit 4.0 KiB: it is one value, "
        "which is never cut); "
    )
    assert line.endswith("% of the message")
    ran = run("merge", "out.cpb", "-o", "back.pb")
    assert (ran.code, ran.out, ran.err) == (0, f"back.pb: {GRAPH}, 9.0 KiB, of 2 chunks\n", "")
    with open("back.pb", "rb") as file:
        assert file.read() == graph
    assert names() == ["back.pb", "graph.pb", "out.cpb"]


def test_split_json_tells_what_was_written(run, graph):
    found = run("split", "graph.pb", "-o", "out.cpb", "--max-size", "4KiB", "--json").json
    assert found == {
        "schema": 1,
        "file": "graph.pb",
        "output": "out.cpb",
        "type": GRAPH,
        "chunked": True,
        "message_size": len(graph),
        "size": os.path.getsize("out.cpb"),
        "limit": 4096,
        "chunks": 2,
        "chunked_fields": 1,
        "largest_chunk": found["largest_chunk"],
        "compression": "",
        "folder": None,
        "copied_files": 0,
        "copied_bytes": 0,
        "fingerprint": None,
        "notes": [],
    }
    found = run("merge", "out.cpb", "-o", "back.pb", "--json").json
    assert found == {
        "schema": 1,
        "file": "out.cpb",
        "output": "back.pb",
        "type": GRAPH,
        "size": len(graph),
        "chunks": 2,
        "merged_messages": 4,
        "verify": "all",
        "too_large_for_protobuf": False,
        "folder": None,
        "copied_files": 0,
        "copied_bytes": 0,
        "fingerprint": None,
        "notes": [],
    }


def test_within_the_limit(run, graph):
    ran = run("split", "graph.pb", "-o", "out")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        f"out.pb: {GRAPH}, 9.0 KiB, written whole: it is within the limit of 1.0 GiB (--max-size), so there is "
        "nothing to split\n"
    )
    ran = run("split", "graph.pb", "-o", "graph")
    assert ran.code == 2
    assert ran.err == "pparse: graph.pb is the file being split, which is within the limit: there is nothing to do\n"
    with open("graph.pb", "rb") as file:
        assert file.read() == graph


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_what_killed_runs_left_is_removed_by_the_next(run, graph):
    before = names()
    for args in (("split", "graph.pb", "-o", "out", "--max-size", "4KiB"), ("merge", "out.cpb", "-o", "back.pb")):
        child = os.fork()
        if child == 0:
            try:
                os.replace = lambda *_: os._exit(99)
                run(*args)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99
        assert len([name for name in names() if name.endswith(".partial")]) == 1
        assert run(*args).code == 0
        before.append("back.pb" if args[0] == "merge" else "out.cpb")
        assert names() == sorted(before)


def test_an_interrupt_leaves_nothing(run, graph, monkeypatch):
    """SIGTERM is an interrupt, too."""
    monkeypatch.setattr(os, "chmod", interrupted)
    assert run("split", "graph.pb", "-o", "out", "--max-size", "4KiB").code == 130
    assert names() == ["graph.pb"]


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_beside_the_source(run, graph):
    """The natural thing to type: the source stays."""
    ran = run("split", "graph.pb", "-o", "graph.cpb", "--max-size", "4KiB")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[1] == "note    graph.pb was left as it is; if both exist, the .cpb takes precedence"
    assert names() == ["graph.cpb", "graph.pb"]
    ran = run("split", "graph.cpb", "-o", "again", "--max-size", "2KiB")
    assert ran.code == 2
    assert "graph.cpb is in chunks already (.cpb); to split it again, merge it first" in ran.err
    assert "pparse merge graph.cpb -o OUT" in ran.err


def test_outputs_that_are_there(run, graph):
    small = ("--max-size", "4KiB")
    assert run("split", "graph.pb", "-o", "out", *small).code == 0
    for suffix in ("cpb", "pb"):
        ran = run("split", "graph.pb", "-o", "out")
        assert (ran.code, ran.out) == (2, "")
        assert f"out.{suffix} exists already; name another output, or replace it with --force" in ran.err
        ran = run("split", "graph.pb", "-o", "out", "--force", *(small if suffix == "pb" else ()))
        assert ran.code == 0
        other = {"cpb": "pb", "pb": "cpb"}[suffix]
        assert ran.lines[1] == f"note    out.{suffix} was removed, since it belonged to an earlier output"
        assert names() == ["graph.pb", f"out.{other}"]
    ran = run("merge", "out.cpb", "-o", "graph.pb")
    assert ran.code == 2
    assert "graph.pb exists already" in ran.err
    ran = run("merge", "out.cpb", "-o", "./out.cpb", "--force")
    assert ran.code == 2
    assert "the output ./out.cpb is the file being read" in ran.err
    assert run("merge", "out.cpb", "-o", "graph.pb", "--force").code == 0
    os.mkdir("folder")
    for words in (("split", "graph.pb", *small), ("merge", "out.cpb")):
        ran = run(*words, "-o", "folder", "--force")
        assert ran.code == 2
        assert "folder is a folder" in ran.err
    ran = run("split", "graph.pb", "-o", "folder/", *small)
    assert "name a file in it: folder/saved_model" in ran.err
    assert run("split", "graph.pb", "-o", "folder/.cpb").code == 2
    assert names("folder") == []


def test_the_file_that_is_read_stays(run, graph, model):
    """Under whatever name it is the output: in a folder, too, and though --force."""
    assert run("split", "graph.pb", "-o", "out", "--max-size", "4KiB").code == 0
    assert run("split", "model", "-o", "chunked", "--max-size", "3000").code == 0
    os.link("out.cpb", "link")
    os.rename("graph.pb", "graph.cpb")
    contents = {}
    for name in ("out.cpb", "chunked/saved_model.cpb", "graph.cpb"):
        with open(name, "rb") as file:
            contents[name] = file.read()
    for words, said in (
        (("merge", "out.cpb", "-o", "link"), "the output link is the file being read"),
        (("merge", "chunked", "-o", "chunked/saved_model.cpb"), "saved_model.cpb is the file being read"),
        (("merge", "chunked", "-o", "new.cpb"), "new.cpb has the suffix of a file in chunks; name it new.pb"),
        (("merge", "out.cpb", "-o", "graph.cpb"), "graph.cpb has the suffix of a file in chunks; name it graph.pb"),
        (
            ("split", "graph.cpb", "-o", "graph", "--type", GRAPH, "--max-size", "4KiB"),
            "graph.cpb is the file being split;",
        ),
    ):
        ran = run(*words, "--force")
        assert (ran.code, ran.out) == (2, ""), words
        assert said in ran.err, words
    for name, content in contents.items():
        with open(name, "rb") as file:
            assert file.read() == content
    assert names() == ["chunked", "graph.cpb", "link", "model", "out.cpb"]


def test_a_limit_above_that_of_protobuf(run, graph, model):
    said = "--max-size was lowered to 2,147,483,647 (2 GiB - 1): protobuf cannot parse a larger message"
    for words in (("graph.pb", "-o", "out"), ("model", "-o", "copy")):
        ran = run("split", *words, "--max-size", "2GiB")
        assert (ran.code, ran.lines[-1]) == (0, f"note    {said}")
        ran = run("split", *words, "--max-size", "2147483647", "--force")
        assert ran.code == 0
        assert "lowered" not in ran.out
    found = run("split", "graph.pb", "-o", "other", "--max-size", "3GiB", "--json").json
    assert (found["limit"], found["notes"]) == ((1 << 31) - 1, [said])


def test_a_type_that_is_not_the_one(run, graph):
    ran = run("split", "graph.pb", "-o", "out", "--type", "tensorflow.SavedModel", "--max-size", "4KiB")
    assert ran.code == 2
    assert ran.err == "pparse: tensorflow.SavedModel has none of the fields of graph.pb; check --type\n"
    assert run("split", "graph.pb", "-o", "out", "--max-size", "4KiB").code == 0
    for name in ("tensorflow.SavedModel", STRING_NODE, "tensorflow.TensorProto"):
        ran = run("merge", "out.cpb", "-o", "back", "--type", name)
        assert (ran.code, ran.out) == (4, "")
        assert f"pparse: check --type: the chunks do not fit {name}, or are damaged\n" in ran.err
    assert names() == ["graph.pb", "out.cpb"]


def test_a_message_of_unknown_type_is_split_once_its_type_is_named(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = StringNode(val="x" * 60, child_nodes=[{"val": "y" * 60}, {"val": "z"}])
    (tmp_path / "it").write_bytes(message.SerializeToString())
    (tmp_path / "own.binpb").write_bytes(descriptor_set())
    small = ("--max-size", "70")
    ran = run("split", "it", "-o", "out", *small)
    assert ran.code in (2, 3)
    assert "name it with --type (tensorflow.SavedModel" in ran.err
    assert "-O descriptor=FILE" in ran.err
    ran = run("split", "it", "-o", "out", "--type", "tensorflow.StringNode", *small)
    assert ran.code == 2
    assert f"did you mean '{STRING_NODE}'" in ran.err
    assert names() == ["it", "own.binpb"]
    ran = run("split", "it", "-o", "out", "--type", STRING_NODE, *small)
    assert ran.code == 0
    line = "note    a .cpb does not name its type; merge it with: pparse merge out.cpb --type " + STRING_NODE
    assert ran.lines[1] == f"{line} -o OUT"
    ran = run(
        "split",
        "it",
        "-o",
        "other",
        "-O",
        f"message={STRING_NODE}",
        "-O",
        "descriptor=own.binpb",
        "-f",
        "protobuf",
        *small,
    )
    assert ran.code == 0
    assert ran.lines[1].endswith(f" --type {STRING_NODE} -O descriptor=own.binpb -o OUT")
    ran = run("merge", "out.cpb", "-o", "back")
    assert ran.code == 2
    assert "the message type of out.cpb is not known, and a .cpb does not name it; use --type NAME" in ran.err
    assert run("merge", "out.cpb", "-o", "back", "--type", STRING_NODE, "-O", "descriptor=own.binpb").code == 0
    assert StringNode.FromString((tmp_path / "back").read_bytes()) == message


def test_what_is_something_else(run, samples, tmp_path):
    out = tmp_path / "out"
    for words, code, said in (
        (("split", f"{samples}/tiny-gpt.safetensors"), 2, "is not a protocol buffer message, but safetensors"),
        (("split", "README.md"), 3, "if it is a protocol buffer message, name it with --type"),
        (("split", "nowhere.pb"), 2, "cannot open"),
        (("merge", f"{samples}/tiny-gpt.safetensors"), 2, "is not a .cpb, but safetensors"),
        (("merge", "README.md"), 3, "only a .cpb can be merged"),
        (("merge", f"{samples}/records.riegeli"), 2, "a Riegeli file whose last record is not chunk metadata"),
        (("merge", "nowhere.cpb"), 2, "cannot open"),
    ):
        ran = run(*words, "-o", out)
        assert (ran.code, ran.out) == (code, ""), words
        assert said in ran.err, words
    assert names(tmp_path) == []


def test_a_plain_message_has_nothing_to_merge(run, graph):
    ran = run("merge", "graph.pb", "-o", "out")
    assert ran.code == 2
    assert "graph.pb is a plain message already (graph-def): there is nothing to merge" in ran.err


def test_wrong_words_are_refused_and_nothing_is_written(run, graph):
    for words, said in (
        (("split", "graph.pb"), "-o/--output"),
        (("split", "graph.pb", "-o", "x", "--max-size", "0"), "at least one byte"),
        (("split", "graph.pb", "-o", "x", "--max-size", "many"), "many"),
        (("split", "graph.pb", "-o", "x", "--compression", "lzma"), "unknown option lzma; valid options: "),
        (("split", "graph.pb", "-o", "x", "-O", "kolor=red"), "no format has this option"),
        (("merge", "graph.pb", "-o", "x", "--verify", "some"), "invalid choice"),
        (("merge", "graph.pb", "-o", "-", "--json"), "cannot both go to standard output"),
    ):
        ran = run(*words)
        assert ran.code == 2, words
        assert said in ran.err, words
    assert names() == ["graph.pb"]
    for command in ("split", "merge"):
        ran = run(command, "--help")
        assert ran.code == 0
        assert f"examples:\n  pparse {command} " in ran.out


def test_what_cannot_be_split(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kind = message_class("tensorflow.proto_splitter_testdata.RepeatedString")
    (tmp_path / "it").write_bytes(kind(strings=["x" * 5000]).SerializeToString())
    ran = run("split", "it", "-o", "out", "--type", kind.DESCRIPTOR.full_name, "--max-size", "1KiB")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "pparse: it: the field strings at 0 takes 4.9 KiB and cannot be cut; the limit is 1.0 KiB "
        "(wanted 5003, got 1024); raise --max-size (now 1.0 KiB)\n"
    )
    assert names() == ["it"]


def test_a_cut_message(run, graph, tmp_path):
    (tmp_path / "graph.pb").write_bytes(graph[:-50])
    ran = run("split", "graph.pb", "-o", "out", "--max-size", "4KiB")
    assert (ran.code, ran.out) == (4, "")
    assert "graph.pb: @0x" in ran.err
    assert names() == ["graph.pb"]


@pytest.mark.parametrize("damage", ["first", "data", "header", "metadata", "cut"])
def test_a_damaged_file(run, graph, tmp_path, damage):
    assert run("split", "graph.pb", "-o", "out", "--max-size", "4KiB", "--compression", "uncompressed").code == 0
    path = tmp_path / "out.cpb"
    raw = bytearray(path.read_bytes())
    with RecordReader(path) as reader:
        begins = [reader.last_pos.chunk_begin for _ in reader]
    at = {"first": begins[0] + 60, "data": begins[1] + 3000, "header": begins[1] + 3, "metadata": len(raw) - 5}.get(
        damage, 0
    )
    if damage == "cut":
        del raw[-3000:]
    else:
        raw[at] ^= 1
    path.write_bytes(raw)
    ran = run("merge", "out.cpb", "-o", "back.pb")
    assert (ran.code, ran.out) == (4, "")
    first, second = ran.err.splitlines()
    assert first.startswith("pparse: out.cpb: ")
    assert "nothing was written; 'pparse check out.cpb' lists all errors" in second
    assert names() == ["graph.pb", "out.cpb"]
    if damage == "first":  # it would show the type
        assert "cannot read chunk 0, which would show the type: chunk data hash mismatch" in first
    if damage == "data":
        assert f"chunk at {begins[1]}" in first
        assert "tensor_content" in first
        for words in (("--verify", "headers"), ("-O", "verify=headers", "--force")):
            assert run("merge", "out.cpb", "-o", "back.pb", *words).code == 0
        assert run("merge", "out.cpb", "-o", "back.pb", "--force", "-O", "verify=headers", "--verify", "all").code == 4


def test_a_message_that_protobuf_does_not_parse(run, graph, monkeypatch):
    run("split", "graph.pb", "-o", "out", "--max-size", "4KiB")
    monkeypatch.setattr(MergeReport, "too_large", property(lambda report: True))
    ran = run("merge", "out.cpb", "-o", "back.pb")
    assert ran.code == 0
    assert ran.lines[1].startswith("note    the message takes ")
    assert "cannot parse more than 2,147,483,647" in ran.lines[1]
    found = run("merge", "out.cpb", "-o", "back.pb", "--force", "--json").json
    assert found["too_large_for_protobuf"] is True
    assert found["notes"] == merge_command._warnings(MergeReport("", found["size"], 0))


# -- folders ---------------------------------------------------------------------------------------------------------


def test_a_folder_is_split_and_merged_with_its_other_files(run, model):
    ran = run("split", "model", "-o", "chunked", "--max-size", "3000")
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines[0].startswith(f"{os.path.join('chunked', 'saved_model.cpb')}: tensorflow.SavedModel, ")
    assert ran.lines[1].startswith("chunked: 1 other file, 4 B, copied; fingerprint ")
    found = run("merge", "chunked", "-o", "back", "--json").json
    assert (found["folder"], found["copied_files"], found["copied_bytes"], found["notes"]) == ("back", 1, 4, [])
    assert found["output"] == os.path.join("back", "saved_model.pb")
    assert len(found["fingerprint"].split("/")) == 4
    assert names("back") == ["assets", "fingerprint.pb", "saved_model.pb"]
    ran = run("merge", "chunked", "-o", "back", "--no-fingerprint")
    assert ran.code == 2
    assert "back is not empty" in ran.err
    ran = run("merge", "chunked", "-o", "back", "--no-fingerprint", "--force")
    assert ran.lines[1] == "back: 1 other file, 4 B, copied; no fingerprint"
    assert names("back") == ["assets", "saved_model.pb"]
    assert names() == ["back", "chunked", "model"]


def test_the_message_of_a_folder_alone(run, model):
    assert run("split", "model", "-o", "only.cpb", "--max-size", "3000").code == 0
    assert run("merge", "model", "-o", "only.pb").code == 2
    assert run("split", "model", "-o", "chunked", "--max-size", "3000").code == 0
    assert run("merge", "chunked", "-o", "only.pb").code == 0
    assert names() == ["chunked", "model", "only.cpb", "only.pb"]
    with open("only.pb", "rb") as file:
        assert message_class("tensorflow.SavedModel").FromString(file.read()) == saved_model()


def test_folders_that_are_refused(run, model):
    for words, code, said in (
        (("split", "model", "-o", "model"), 2, "is the source itself"),
        (("split", "model", "-o", "model/new"), 2, "lies in the source"),
        (("split", "model", "-o", "x", "--type", GRAPH), 2, "without --type"),
        (("merge", "model", "-o", "x"), 2, "there is nothing to merge"),
        (("split", "model/assets", "-o", "x"), 3, "not a SavedModel folder"),
        (("split", "model", "-o", "x", "--max-size", "2"), 2, "raise --max-size"),
    ):
        ran = run(*words)
        assert (ran.code, ran.out) == (code, ""), words
        assert said in ran.err, words
    assert names() == ["model"]


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_links_out_of_the_folder(run, model, tmp_path):
    (tmp_path / "far").write_text("far")
    (model / "assets" / "link").symlink_to(tmp_path / "far")
    ran = run("split", "model", "-o", "x")
    assert ran.code == 2
    assert "--follow-links" in ran.err
    ran = run("split", "model", "-o", "x", "--follow-links")
    assert ran.code == 0
    assert ran.lines[-1].startswith("note    assets/link was a link out of the folder")


def test_reads_are_told(run, graph, model):
    for words in (("split", "graph.pb", "-o", "out"), ("split", "model", "-o", "copy")):
        ran = run(*words, "--trace-io")
        assert ran.code == 0
        assert "bytes in" in ran.err.splitlines()[-1]
    assert "words.txt" in ran.err


# -- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(COMMAND is None or os.name == "nt", reason="the command is not installed")
def test_merge_writes_to_standard_output_and_devices(graph):
    def call(*words):
        return subprocess.run([COMMAND, *words], capture_output=True)

    assert call("split", "graph.pb", "-o", "out", "--max-size", "4KiB").returncode == 0
    ran = call("merge", "out.cpb", "-o", "-")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, graph, b"")
    ran = call("merge", "out.cpb", "-o", "/dev/null")
    assert (ran.returncode, ran.stdout) == (0, b"/dev/null: tensorflow.GraphDef, 9.0 KiB, of 2 chunks\n")
    ran = call("split", "graph.pb", "-o", "again", "--max-size", "4KiB", "--json")
    assert json.loads(ran.stdout)["chunked"] is True
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb", buffering=0) as full:
            ran = subprocess.run([COMMAND, "merge", "out.cpb", "-o", "-"], stdout=full, stderr=subprocess.PIPE)
        assert ran.returncode == 2
        assert ran.stderr == b"pparse: cannot write: No space left on device\n"
        ran = call("merge", "out.cpb", "-o", "/dev/full")
        assert (ran.returncode, ran.stderr) == (2, b"pparse: /dev/full: cannot write: No space left on device\n")
    assert names() == ["again.cpb", "graph.pb", "out.cpb"]


@pytest.mark.skipif(COMMAND is None or os.name == "nt", reason="the command is not installed")
def test_no_binary_data_on_a_terminal(graph):
    import pty

    subprocess.run([COMMAND, "split", "graph.pb", "-o", "out", "--max-size", "4KiB"], check=True, capture_output=True)
    ours, theirs = pty.openpty()
    try:
        ran = subprocess.run([COMMAND, "merge", "out.cpb", "-o", "-"], stdout=theirs, stderr=subprocess.PIPE)
    finally:
        os.close(ours)
        os.close(theirs)
    assert ran.returncode == 2
    assert b"binary data is not for a terminal" in ran.stderr
