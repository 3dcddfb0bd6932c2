"""Shards of distributed checkpoints: archives of torch.save behind each other."""

from __future__ import annotations

import pparse
from pparse import Status
from pparse.data.base import BytesData
from tests.pytorch_files import checkpoint, numbered

ITEM = checkpoint(*numbered(2, 64)).content
NAMES = [f"{number}/{name}" for number in range(3) for name in pparse.view(ITEM)]


def shard(content: bytes, name: str = "__0_0.distcp") -> BytesData:
    return BytesData(content, name)


def test_the_tensors_of_each_archive_have_its_number_before_their_names() -> None:
    with pparse.view(shard(3 * ITEM)) as found, pparse.view(ITEM) as alone:
        assert list(found) == NAMES
        for name in NAMES:
            number, _, own = name.partition("/")
            assert found[name].numpy().tolist() == alone[own].numpy().tolist()
            assert found[name].spans[0].offset == alone[own].spans[0].offset + int(number) * len(ITEM)
        assert (found.extent().status, list(found.check())) == (Status.COMPLETE, [])
        assert found.find("3/x") is found.find("00/" + NAMES[0][2:]) is found.find("x") is None
        assert dict(found.extraction.result.listing.details())["items"].startswith("3 archives")


def test_of_a_cut_shard_what_is_before_the_cut_is_whole() -> None:
    for left in (len(ITEM) - 1, len(ITEM) - 30, 40):
        with pparse.view(shard(2 * ITEM + ITEM[:left])) as found:
            assert found.extent().status is Status.TRUNCATED
            assert [name for name in NAMES[:4] if found[name].status is Status.COMPLETE] == NAMES[:4]
            assert found.extraction.result.container.enter("1").format == "pytorch"


def test_an_archive_whose_end_record_is_lost_hides_no_other() -> None:
    content = bytearray(3 * ITEM)
    content[2 * len(ITEM) - 22] ^= 1
    with pparse.view(shard(bytes(content))) as found:
        assert list(found) == NAMES
        assert next(iter(found.check())).path == "1"
        assert found[NAMES[-1]].status is found[NAMES[0]].status is Status.COMPLETE
        assert found.extent().status is Status.DAMAGED


def test_archives_between_which_all_is_lost_are_not_taken_for_one() -> None:
    """The directory of one, and the pickle of the next: its storages have the same names, and right checksums."""
    begin, end = (ITEM.index(mark) for mark in (b"PK\x01\x02", b"data/1"))
    for lost in (bytes(len(ITEM) - begin + end), b""):
        with pparse.view(shard(ITEM + ITEM[:begin] + lost + ITEM[end:])) as found, pparse.view(ITEM) as alone:
            assert list(found) == NAMES[:4]
            for name in NAMES[2:4]:
                tensor = found[name]
                assert (tensor.numpy().tolist(), tensor.verified) == (alone[name[2:]].numpy().tolist(), True)
            assert found.extent().status is Status.DAMAGED


def test_a_changed_byte_is_found_by_the_checksum_of_its_archive() -> None:
    with pparse.view(ITEM) as alone:
        at = next(iter(alone.values())).spans[0].offset + len(ITEM)
    content = bytearray(3 * ITEM)
    content[at] ^= 1
    with pparse.view(shard(bytes(content))) as found:
        assert {finding.path.partition("/")[0] for finding in found.check()} == {"1"}
        assert [name for name in NAMES if found[name].status is not Status.COMPLETE] == [NAMES[2]]


def test_an_item_whose_own_head_is_damaged_is_shown_and_told(tmp_path, run) -> None:
    """By its directory, as in a checkpoint alone; nothing of it is taken for a zip."""
    content, path = 3 * ITEM, tmp_path / "__0_0.distcp"
    for at in (12, len(ITEM) + 12):  # the first header of all tells the format, too
        path.write_bytes(content[:at] + bytes(16) + content[at + 16 :])
        with pparse.view(path) as model:
            assert list(model) == NAMES
        for words in (("check",), ("check", "-R"), ("recover", "-o", tmp_path / f"o{at}")):
            ran = run(words[0], path, *words[1:])
            assert ran.code == 4
            assert "local header is damaged" in ran.out
            assert "missing-storage" not in ran.out
