"""Every prefix of a checkpoint, and every changed byte: what is whole is had, and what is not is never called whole."""

from __future__ import annotations

import pytest

import pparse
from pparse.errors import PparseError
from pparse.findings import Status
from pparse.recovery.recover import recover
from tests import sweep
from tests.pytorch_files import checkpoint, legacy_checkpoint, numbered, rezipped

TENSORS, CONTENTS = numbered(5, 64, seed=1)
SMALL = {
    "zip": checkpoint(TENSORS, CONTENTS),
    "rezipped": rezipped(TENSORS, CONTENTS),
    "legacy": legacy_checkpoint(TENSORS, CONTENTS),
}
MANY_TENSORS, MANY_CONTENTS = numbered(20, 16 << 10, seed=2)
MANY = {
    "zip": checkpoint(MANY_TENSORS, MANY_CONTENTS),
    "rezipped": rezipped(MANY_TENSORS, MANY_CONTENTS),
    "legacy": legacy_checkpoint(MANY_TENSORS, MANY_CONTENTS),
}


def asked(content: bytes, *, check: bool = False) -> dict[str, tuple[Status, bytes | None]]:
    """Return status and bytes of each tensor, None for what is refused; ``check``: after all was looked at."""
    found: dict[str, tuple[Status, bytes | None]] = {}
    try:
        with pparse.open(content) as document:
            viewer = document.view()
            for _ in document.check() if check else ():
                pass
            for tensor in viewer.tensors():
                try:
                    array = tensor.numpy().tobytes()
                except PparseError:
                    array = None
                found[tensor.name] = tensor.status, array
    except PparseError:
        pass
    return found


@pytest.mark.parametrize("form", SMALL)
def test_every_prefix_gives_the_tensors_whose_bytes_are_there(form):
    made = SMALL[form]
    borders = [place for span in made.places.values() for place in span] + [made.head]
    for length in sweep.some(range(len(made.content)), 12, keep=borders, ends=30):
        found = asked(made.content[:length])
        for name, (begin, end) in made.places.items():
            status, content = found.get(name, (Status.MISSING, None))
            if end <= length and made.head <= length:
                assert (status, content) == (Status.COMPLETE, CONTENTS[name]), (length, name)
            elif length < end:
                wanted = Status.TRUNCATED if begin < length and made.head <= length else Status.MISSING
                assert (status, content) == (wanted, None), (length, name)


@pytest.mark.parametrize("form", SMALL)
def test_no_changed_byte_makes_a_wrong_tensor_that_is_called_whole(form):
    made = SMALL[form]
    lengths = [own[0][0] + at for own in made.own.values() for at in range(26, 30)]  # in local headers
    for at in sweep.some(range(len(made.content)), 16, keep=lengths, ends=30):
        changed = bytearray(made.content)
        changed[at] ^= 1 << at % 8
        for name, (status, content) in asked(bytes(changed), check=True).items():
            if status is Status.COMPLETE and name in CONTENTS and content != CONTENTS[name]:
                begin, end = made.places[name]
                if form != "legacy":  # torch believes a name in the directory that became another's: a finding tells
                    assert content in CONTENTS.values(), (at, name)
                    assert made.content[at - 11 : at] == b"model/data/", (at, name)
                else:  # nothing protects the old ones: not the numbers, and not the pickles either
                    assert begin <= at < end or at < made.head, (at, name)


def recovered(content: bytes, folder) -> dict[str, bytes]:
    """Return the tensors in the safetensors file that is made of a checkpoint."""
    path = folder.with_suffix(".pt")
    path.write_bytes(content)
    with pparse.open(path) as document:
        recover(document, folder)
    saved = folder / f"{folder.name}.safetensors"
    if not saved.exists():
        return {}
    with pparse.view(saved) as viewer:
        return {tensor.name: tensor.numpy().tobytes() for tensor in viewer.tensors()}


@pytest.mark.parametrize(("form", "count"), [("zip", 11), ("rezipped", 11), ("legacy", 11)])
def test_of_twenty_tensors_cut_to_sixty_percent_those_are_saved(form, count, tmp_path):
    made = MANY[form]
    length = len(made.content) * 6 // 10
    saved = recovered(made.content[:length], tmp_path / "many")
    assert saved == {name: MANY_CONTENTS[name] for name, (_, end) in made.places.items() if end <= length}
    assert len(saved) == count


@pytest.mark.parametrize(("form", "count"), [("zip", 20), ("rezipped", 20), ("legacy", 19)])
def test_one_byte_short_costs_no_more_than_that_byte_is_in(form, count, tmp_path):
    saved = recovered(MANY[form].content[:-1], tmp_path / "many")
    assert saved == dict(list(MANY_CONTENTS.items())[:count])


@pytest.mark.parametrize("form", SMALL)
def test_every_prefix_is_recovered(form, tmp_path):
    made = SMALL[form]
    borders = [end for _, end in made.places.values()]
    for length in sweep.some(range(made.head, len(made.content)), 40, keep=borders, ends=2):
        saved = recovered(made.content[:length], tmp_path / f"n{length}")
        assert saved == {name: CONTENTS[name] for name, (_, end) in made.places.items() if end <= length}, length


def statuses(content: bytes) -> list[str]:
    return [str(status) for status, _ in asked(content).values()]


def test_of_an_old_file_a_number_of_elements_that_differs_damages_one_storage():
    made = SMALL["legacy"]
    changed = bytearray(made.content)
    changed[made.places["layers.2.weight"][0] - 8] ^= 1
    assert statuses(bytes(changed)) == ["complete", "complete", "damaged", "complete", "complete"]


@pytest.mark.parametrize("moved", [b"", bytes(16)])
def test_of_an_old_file_into_which_bytes_came_all_that_moved_is_damaged(moved):
    made = SMALL["legacy"]
    begin, _ = made.places["layers.1.weight"]
    changed = made.content[: begin + 8] + moved + made.content[begin + 8 + (0 if moved else 8) :]
    assert statuses(changed) == ["complete", "damaged", "damaged", "damaged", "damaged"]


def test_of_an_archive_that_ends_in_zeros_the_storage_they_begin_in_is_cut_there():
    made = SMALL["zip"]
    at = made.places["layers.2.weight"][0] + 10
    found = asked(made.content[:at] + bytes(len(made.content) - at))
    assert [str(found[name][0]) for name in list(TENSORS)[:3]] == ["complete", "complete", "truncated"]
    assert found["layers.2.weight"][1] is None
