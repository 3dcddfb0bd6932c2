"""Objects of pickles as texts: what would be called with what, short whatever the pickle says."""

from __future__ import annotations

import datetime
import pickle
from collections import Counter, deque

from pparse.parsers.pickle.values import Call, Global, call_words
from tests.rows import rows


class Cart:
    def __init__(self):
        self.total = 3


@rows(
    ("value", "text"),
    [
        (datetime.date(2020, 1, 2), r"datetime.date(b'\x07\xe4\x01\x02')"),
        (datetime.timedelta(2, 3, 4), "datetime.timedelta(2, 3, 4)"),
        (Cart(), "tests.test_pickle_words.Cart() with {'total': 3}"),
        (deque([1, 2]), "collections.deque() with [1, 2]"),
        (Counter("aab"), "collections.Counter({'a': 2, 'b': 1})"),
        (slice(1, None), "builtins.slice(1, None, None)"),
    ],
)
@rows("protocol", [1, 2, 4])
def test_an_object_is_shown_by_its_class_and_arguments(value, text, protocol, tmp_path, run):
    path = tmp_path / "p.pkl"
    path.write_bytes(pickle.dumps([value], protocol=protocol))
    shown = run("get", path, "[0]").json
    if protocol > 2:
        assert shown == text
    else:  # older protocols write bytes and modules otherwise
        assert shown.startswith(text.partition("(")[0].replace("builtins.", "__builtin__."))


def test_texts_are_bounded_whatever_the_value_is():
    call: Call = Call(Global("m", "C"), ())
    for number in range(100_000):
        call = Call(Global("m", "C"), (call, [call] * 9), {"k": call}) if number % 2 else Call(call, (call,))
    call.state, call.items, call.pairs = {"x": [1 << 100_000]}, ["y" * 10_000_000], [([], b"z" * 10_000_000)] * 9
    text = call_words(call)
    assert len(text) < 250
    assert call_words(Call(Global("m", "f"), (1 << 100_000,))) == "m.f(an integer of 100,001 bits)"
    assert call_words(Call(Global("m", "f"), ("a" * 99, *range(9)))) == f"m.f('{'a' * 40}'…, 0, 1, 2, 3, 4, …)"
    assert call_words(Call(Global("m", "f"), ([[[[1]]]], ((), (2,)), {3: {4: {5: 6}}}))) == (
        "m.f([[[…]]], ((), (2,)), {3: {4: {…}}})"
    )
    unhashable = Call(Global("m", "f"), ())
    unhashable.pairs = [([1], {2})]
    assert call_words(unhashable) == "m.f() with {[1]: {2}}"
