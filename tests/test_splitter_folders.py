"""Whole SavedModel folders split and merged: all files there, the target whole or not at all, nothing beside it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

import pparse
from pparse.errors import (
    CancelledError,
    FormatError,
    MalformedError,
    OptionError,
    SourceError,
    SplitError,
    UnsupportedError,
)
from pparse.proto_splitter import folders
from pparse.proto_splitter.fingerprint import fingerprint, read_fingerprint
from pparse.proto_splitter.folders import merge_folder, split_folder
from pparse.protos import message_class
from tests.splitter_samples import make_graph_def_with_constant_nodes, plain

SavedModel = message_class("tensorflow.SavedModel")
LIMIT = 3000

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need rights there")


def saved_model(sizes=(100, 9000, 100), functions=(200, 200)):
    model = SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(make_graph_def_with_constant_nodes(list(sizes), fn=list(functions)))
    return model


@pytest.fixture
def source(tmp_path):
    """A folder as TensorFlow writes them, and some more."""
    folder = tmp_path / "model"
    (folder / "variables").mkdir(parents=True)
    (folder / "assets.extra" / "deep").mkdir(parents=True)
    (folder / "assets").mkdir()
    (folder / "saved_model.pb").write_bytes(saved_model().SerializeToString())
    (folder / "variables" / "variables.index").write_bytes(b"index" * 99)
    (folder / "variables" / "variables.data-00000-of-00001").write_bytes(bytes(range(256)) * 9000)
    (folder / "assets.extra" / "deep" / "words.txt").write_text("a\nb\n")
    (folder / "keras_metadata.pb").write_bytes(b"keras")
    (folder / "fingerprint.pb").write_bytes(b"\x08\x01")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def tree(folder) -> dict[str, bytes | None]:
    """Files and their content, and folders, by their names."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(Path(folder).rglob("*"))
    }


OWN = {"saved_model.pb", "saved_model.cpb", "fingerprint.pb"}


def others(folder) -> dict[str, bytes | None]:
    return {name: content for name, content in tree(folder).items() if name not in OWN}


def beside(folder) -> list[str]:
    return sorted(os.listdir(folder.parent))


# -- what comes out --------------------------------------------------------------------------------------------------


def test_there_and_back(source, tmp_path):
    before = tree(source)
    told = []
    report = split_folder(source, tmp_path / "chunked", max_size=LIMIT, progress=lambda *words: told.append(words))
    chunked = tmp_path / "chunked"
    assert sorted(os.listdir(chunked)) == sorted({*os.listdir(source), "saved_model.cpb"} - {"saved_model.pb"})
    assert others(chunked) == others(source)
    assert (report.path, report.model.path) == (str(chunked), str(chunked / "saved_model.cpb"))
    assert report.files == 5
    assert report.bytes == sum(len(content) for content in others(source).values() if content is not None)
    assert report.notes == []
    assert report.fingerprint == read_fingerprint(chunked)
    assert report.fingerprint.same_model(fingerprint(chunked))
    assert report.fingerprint.checkpoint_hash
    assert {row[2] for row in told} >= {"splitting", f"copying {os.path.join('variables', 'variables.index')}"}
    assert all(done <= total for done, total, _ in told)
    report = merge_folder(chunked, tmp_path / "plain")
    assert others(tmp_path / "plain") == others(source)
    assert sorted(os.listdir(tmp_path / "plain")) == sorted(os.listdir(source))
    merged = SavedModel.FromString((tmp_path / "plain" / "saved_model.pb").read_bytes())
    assert plain(merged) == plain(saved_model())
    assert report.fingerprint.same_model(fingerprint(source))
    assert tree(source) == before
    assert beside(source) == ["chunked", "model", "plain"]
    assert "chunked" in repr(split_folder(source, tmp_path / "deep" / "chunked", max_size=LIMIT))


def test_within_the_limit(source, tmp_path):
    report = split_folder(source, tmp_path / "same")
    assert not report.model.chunked
    assert (tmp_path / "same" / "saved_model.pb").read_bytes() == (source / "saved_model.pb").read_bytes()
    assert not (tmp_path / "same" / "saved_model.cpb").exists()


@pytest.mark.skipif(os.name == "nt", reason="rights as POSIX has them")
def test_copies_keep_their_rights_within_the_umask(source, tmp_path):
    split_folder(source, tmp_path / "chunked", max_size=LIMIT)
    mask = os.umask(0)
    os.umask(mask)
    for name, mode in (("", 0o777 & ~mask), ("run.sh", 0o755), ("saved_model.cpb", 0o666 & ~mask)):
        assert stat.S_IMODE((tmp_path / "chunked" / name).stat().st_mode) == mode


def test_of_cpb_and_pb_in_a_folder_the_cpb_is_merged_with_a_note(source, tmp_path):
    """TensorFlow takes the .cpb; so do we."""
    split_folder(source, tmp_path / "chunked", max_size=LIMIT)
    (tmp_path / "chunked" / "saved_model.pb").write_bytes(b"something else")
    report = merge_folder(tmp_path / "chunked", tmp_path / "plain")
    assert len(report.notes) == 1
    assert "saved_model.pb, which was left out" in report.notes[0]
    merged = SavedModel.FromString((tmp_path / "plain" / "saved_model.pb").read_bytes())
    assert plain(merged) == plain(saved_model())
    with pytest.raises(OptionError, match=r"in chunks already: .* which takes precedence over its saved_model.pb"):
        split_folder(tmp_path / "chunked", tmp_path / "again")


def test_a_model_without_a_meta_graph_gets_no_fingerprint_and_a_note(source, tmp_path):
    (source / "saved_model.pb").write_bytes(SavedModel(saved_model_schema_version=1).SerializeToString())
    report = split_folder(source, tmp_path / "a")
    assert report.fingerprint is None
    assert report.notes == ["no fingerprint.pb was written: the SavedModel has no MetaGraphDef"]
    assert not (tmp_path / "a" / "fingerprint.pb").exists()
    (source / "saved_model.pb").write_bytes(saved_model().SerializeToString())
    report = split_folder(source, tmp_path / "b", fingerprint=False)
    assert (report.fingerprint, report.notes) == (None, [])
    assert not (tmp_path / "b" / "fingerprint.pb").exists()


# -- the target ------------------------------------------------------------------------------------------------------


def test_targets_that_are_refused(source, tmp_path):
    before = tree(tmp_path)
    (tmp_path / "file").write_text("x")
    before["file"] = b"x"
    for target, words in (
        (source, "is the source itself"),
        (source / ".." / "model", "is the source itself"),
        (source / "new", "lies in the source"),
        (source / "assets", "lies in the source"),
        (tmp_path, "lies in the target"),
        (tmp_path / "file", "is not a folder"),
    ):
        for overwrite in (False, True):
            with pytest.raises(OptionError, match=words):
                split_folder(source, target, max_size=LIMIT, overwrite=overwrite)
    assert tree(tmp_path) == before


@needs_links
def test_a_target_that_is_the_source_through_a_link(source, tmp_path):
    (tmp_path / "link").symlink_to(source)
    for target in (tmp_path / "link", tmp_path / "link" / "new"):
        with pytest.raises(OptionError, match="the source"):
            split_folder(source, target, max_size=LIMIT, overwrite=True)
    (tmp_path / "there").mkdir()
    (tmp_path / "other").symlink_to(tmp_path / "there")
    split_folder(source, tmp_path / "other", max_size=LIMIT)
    assert (tmp_path / "other").is_symlink()
    assert (tmp_path / "there" / "saved_model.cpb").exists()


def test_a_folder_that_is_not_empty_is_left_alone_unless_forced(source, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    split_folder(source, target, max_size=LIMIT)  # it was empty
    (target / "more.txt").write_text("x")
    with pytest.raises(OptionError, match="not empty"):
        split_folder(source, target, max_size=LIMIT)
    assert (target / "more.txt").exists()
    split_folder(source, target, max_size=LIMIT, overwrite=True)
    assert not (target / "more.txt").exists()
    assert others(target) == others(source)
    # What is no model is not taken for an old one.
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("x")
    with pytest.raises(OptionError, match="not a SavedModel folder: it is not overwritten"):
        split_folder(source, home, max_size=LIMIT, overwrite=True)
    assert tree(home) == {"letter.txt": b"x"}
    assert beside(source) == ["home", "model", "target"]


def test_nothing_is_left_behind(source, tmp_path, monkeypatch):
    target = tmp_path / "target"
    target.mkdir()
    (target / "saved_model.pb").write_bytes(b"old")
    before = tree(tmp_path)
    more = {"max_size": LIMIT, "overwrite": True}
    with pytest.raises(CancelledError):
        split_folder(source, target, cancel=lambda: True, **more)
    with pytest.raises(SplitError):
        split_folder(source, target, max_size=2, overwrite=True)
    with pytest.raises(MalformedError, match="unknown option"):
        split_folder(source, target, writer_options="lzma", **more)

    def fail(*words):
        if words[2].startswith("copying"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split_folder(source, target, progress=fail, **more)
    with monkeypatch.context() as patched:
        patched.setattr(folders, "copy_into", lambda *words: (_ for _ in ()).throw(OSError(28, "No space left")))
        with pytest.raises(SourceError, match="cannot write: No space left"):
            split_folder(source, target, **more)
    raw = (source / "saved_model.pb").read_bytes()
    (source / "saved_model.pb").write_bytes(raw[:-100])
    with pytest.raises(pparse.PparseError):
        split_folder(source, target, **more)
    (source / "saved_model.pb").write_bytes(raw)
    assert tree(tmp_path) == before


def test_the_old_folder_comes_back(source, tmp_path, monkeypatch):
    """Where the last renaming fails, what was there stays."""
    target = tmp_path / "target"
    target.mkdir()
    (target / "saved_model.pb").write_bytes(b"old")
    before = tree(tmp_path)
    rename = os.rename

    def failing(old, new):
        if str(old).endswith(".partial"):
            raise OSError(5, "Input/output error")
        rename(old, new)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(SourceError, match="cannot write: Input/output error"):
        split_folder(source, target, max_size=LIMIT, overwrite=True)
    assert tree(tmp_path) == before


def test_a_damaged_chunk(source, tmp_path):
    split_folder(source, tmp_path / "chunked", max_size=LIMIT, writer_options="uncompressed")
    path = tmp_path / "chunked" / "saved_model.cpb"
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(MalformedError, match="hash mismatch"):
        merge_folder(tmp_path / "chunked", tmp_path / "plain")
    assert beside(source) == ["chunked", "model"]
    merge_folder(tmp_path / "chunked", tmp_path / "plain", verify="headers")


# -- the source ------------------------------------------------------------------------------------------------------


def test_sources_that_are_no_models(source, tmp_path):
    with pytest.raises(SourceError, match="is not a folder"):
        split_folder(source / "saved_model.pb", tmp_path / "x")
    with pytest.raises(SourceError, match="is not a folder"):
        merge_folder(tmp_path / "nowhere", tmp_path / "x")
    with pytest.raises(OptionError, match=r"plain saved_model\.pb: there is nothing to merge"):
        merge_folder(source, tmp_path / "x")
    (source / "saved_model.pb").rename(source / "saved_model.pbtxt")
    with pytest.raises(UnsupportedError, match="text form"):
        split_folder(source, tmp_path / "x")
    (source / "saved_model.pbtxt").unlink()
    with pytest.raises(FormatError, match="not a SavedModel folder"):
        split_folder(source, tmp_path / "x")
    with pytest.raises(TypeError, match="colour"):
        split_folder(source, tmp_path / "x", colour="red")
    assert beside(source) == ["model"]


@needs_links
def test_a_folder_in_the_place_of_the_model(source, tmp_path):
    (source / "saved_model.cpb").mkdir()
    for write in (split_folder, merge_folder):
        with pytest.raises(FormatError, match="should be the model file") as caught:
            write(source, tmp_path / "out")
        assert caught.value.source == str(source / "saved_model.cpb")
    assert beside(source) == ["model"]


def test_links_within_the_folder_are_copied_and_others_refused(source, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    (source / "assets" / "inside").symlink_to("../run.sh")
    split_folder(source, tmp_path / "a", max_size=LIMIT)
    copied = tmp_path / "a" / "assets" / "inside"
    assert (copied.is_symlink(), copied.read_text()) == (False, "#!/bin/sh\n")

    (source / "assets" / "outside").symlink_to(secret)
    with pytest.raises(OptionError, match=r"outside is a link out of the folder, to .*secret"):
        split_folder(source, tmp_path / "b", max_size=LIMIT)
    assert not (tmp_path / "b").exists()
    report = split_folder(source, tmp_path / "b", max_size=LIMIT, follow_links=True)
    assert (tmp_path / "b" / "assets" / "outside").read_text() == "of somebody else"
    assert [note for note in report.notes if "outside was a link out of the folder" in note]
    (source / "assets" / "outside").unlink()

    (source / "assets" / "loop").symlink_to(source)
    for follow in (False, True):
        with pytest.raises(OptionError, match="loop is a link to the folder"):
            split_folder(source, tmp_path / "c", max_size=LIMIT, follow_links=follow)
    (source / "assets" / "loop").unlink()

    (source / "assets" / "nothing").symlink_to("nowhere")
    os.mkfifo(source / "assets" / "pipe")
    report = split_folder(source, tmp_path / "c", max_size=LIMIT)
    assert sorted(os.listdir(tmp_path / "c" / "assets")) == ["inside"]
    assert [note.split(" and was")[0] for note in report.notes] == [
        "assets/nothing is a broken link",
        "assets/pipe is neither a file nor a folder",
    ]

    # The model itself, as in a download cache: it is read, and said.
    (source / "saved_model.pb").rename(tmp_path / "blob")
    (source / "saved_model.pb").symlink_to(tmp_path / "blob")
    report = split_folder(source, tmp_path / "d", max_size=LIMIT)
    assert report.model.chunked
    assert "saved_model.pb was a link out of the folder" in report.notes[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_what_a_killed_run_left_is_removed_by_the_next(source, tmp_path):
    """A folder half written goes; one that was moved away for another gets its name again."""
    target, place = tmp_path / "target", os.rename
    target.mkdir()
    (target / "saved_model.pb").write_bytes(b"old")

    def die_at(number: int) -> None:
        moves: list[str] = []

        def rename(old, new):
            moves.append(new)
            if len(moves) == number:
                os._exit(99)
            place(old, new)

        child = os.fork()
        if child == 0:
            try:
                os.rename = rename
                split_folder(source, target, max_size=LIMIT, overwrite=True)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 99

    die_at(1)
    assert len(os.listdir(tmp_path)) == 3
    die_at(2)
    assert len([name for name in os.listdir(tmp_path) if "partial" in name]) == 2
    with pytest.raises(OptionError, match="is not empty"):
        split_folder(source, target, max_size=LIMIT)
    assert tree(target) == {"saved_model.pb": b"old"}
    split_folder(source, target, max_size=LIMIT, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == sorted([source.name, "target"])
    assert "saved_model.cpb" in os.listdir(target)
