from __future__ import annotations

import gc
import random
import threading

import pytest

from pparse.errors import LimitError
from pparse.limits import DEFAULT_BUDGET, MIB, MemoryBudget


class Keeper:
    """Keeps memory that it gives back when asked; notes in ``log`` that it was asked."""

    def __init__(self, budget: MemoryBudget, amount: int, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.charge = budget.charge(amount, name, self.evict)

    def evict(self) -> None:
        self.log.append(self.name)
        self.charge.release()


def test_charge_and_release():
    budget = MemoryBudget("2MiB")
    assert (budget.used, budget.peak) == (0, 0)
    charge = budget.charge(1000, "a block")
    assert (budget.used, charge.amount, charge.what) == (1000, 1000, "a block")
    charge.release()
    assert (budget.used, charge.amount) == (0, 0)
    charge.release()
    assert budget.used == 0
    assert budget.peak == 1000


def test_default_and_sizes():
    assert MemoryBudget().limit == DEFAULT_BUDGET == 64 * MIB
    assert MemoryBudget("64MB").limit == 64_000_000
    assert MemoryBudget(2 * MIB).limit == 2 * MIB


@pytest.mark.parametrize("limit", [0, MIB - 1, "1MB", "0.5MiB"])
def test_a_budget_below_one_mebibyte_is_refused(limit):
    with pytest.raises(ValueError, match="1 MiB at least"):
        MemoryBudget(limit)


@pytest.mark.parametrize("limit", [-1, "much"])
def test_a_budget_that_is_no_size_is_refused(limit):
    with pytest.raises(ValueError, match="size"):
        MemoryBudget(limit)


def test_a_dropped_charge_is_given_back():
    budget = MemoryBudget("1MiB")
    charge = budget.charge(1000, "a block")
    del charge
    gc.collect()
    assert budget.used == 0


def test_a_charge_in_a_cycle_is_given_back():
    budget = MemoryBudget("1MiB")
    cycle: list[object] = [budget.charge(1000, "a block")]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert budget.used == 0


def test_context_manager_gives_back_even_on_error():
    budget = MemoryBudget("1MiB")
    charge = budget.charge(1000, "a block")

    def work() -> None:
        with charge as entered:
            assert entered is charge
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert (budget.used, charge.amount) == (0, 0)


def test_limit_is_reached_but_not_passed():
    budget = MemoryBudget("1MiB")
    held = budget.charge(MIB, "all of it")
    with pytest.raises(LimitError):
        budget.charge(1, "one more")
    assert budget.used == MIB
    held.release()
    budget.charge(MIB, "again").release()


def test_limit_error_names_budget_and_numbers():
    budget = MemoryBudget("1MiB")
    held = budget.charge(MIB - 100, "blocks")
    with pytest.raises(LimitError) as caught:
        budget.charge(3 * MIB, "a decoder window")
    error = caught.value
    assert error.option == "--budget 4MiB"
    assert (error.wanted, error.got) == (3 * MIB, 100)
    assert "a decoder window needs 3.0 MiB" in str(error)
    assert "1.0 MiB" in str(error)
    # The budget it names would do.
    enough = MemoryBudget(error.option.split()[1])
    enough.charge(held.amount, "blocks"), enough.charge(3 * MIB, "a decoder window")


def test_resize_up_and_down():
    budget = MemoryBudget("1MiB")
    charge = budget.charge(100, "an index")
    charge.resize(500)
    assert (budget.used, charge.amount) == (500, 500)
    charge.resize(20)
    assert (budget.used, charge.amount) == (20, 20)
    charge.resize(0)
    assert budget.used == 0
    charge.resize(7)
    assert budget.used == 7
    assert budget.peak == 500


def test_refused_resize_holds_what_it_held():
    budget = MemoryBudget("1MiB")
    charge = budget.charge(100, "an index")
    with pytest.raises(LimitError) as caught:
        charge.resize(MIB + 1)
    assert (budget.used, charge.amount) == (100, 100)
    assert caught.value.wanted == MIB + 1


def test_peak_is_the_most_ever_held():
    budget = MemoryBudget("1MiB")
    first = budget.charge(300, "a")
    second = budget.charge(200, "b")
    first.release()
    third = budget.charge(100, "c")
    assert (budget.used, budget.peak) == (300, 500)
    second.release(), third.release()
    assert budget.peak == 500


def test_eviction_goes_least_recently_used_first():
    budget, log = MemoryBudget("1MiB"), []
    keepers = [Keeper(budget, MIB // 4, name, log) for name in "abcd"]
    keepers[0].charge.touch()
    held = budget.charge(MIB // 2, "a block")
    assert log == ["b", "c"]
    assert budget.used == MIB
    assert [keeper.charge.amount for keeper in keepers] == [MIB // 4, 0, 0, MIB // 4]
    more = budget.charge(MIB // 2, "another block")
    assert log == ["b", "c", "d", "a"]
    held.release(), more.release()


def test_a_resize_is_a_use():
    budget, log = MemoryBudget("1MiB"), []
    keepers = [Keeper(budget, MIB // 4, name, log) for name in "abcd"]
    keepers[0].charge.resize(MIB // 4 - 1)
    held = budget.charge(MIB // 4, "a block")
    assert log == ["b"]
    held.release()


def test_no_more_is_evicted_than_needed():
    budget, log = MemoryBudget("1MiB"), []
    keepers = [Keeper(budget, MIB // 4, name, log) for name in "abcd"]
    held = budget.charge(1, "a byte")
    assert log == ["a"]
    assert budget.used == 3 * MIB // 4 + 1
    held.release()
    assert keepers[1].charge.amount


def test_nothing_is_evicted_while_there_is_room():
    budget, log = MemoryBudget("1MiB"), []
    keeper = Keeper(budget, MIB // 2, "a", log)
    held = budget.charge(MIB // 2, "a block")
    assert log == []
    assert keeper.charge.amount == MIB // 2
    held.release()


def test_who_asks_is_not_evicted():
    budget, log = MemoryBudget("1MiB"), []
    asking = Keeper(budget, MIB // 2, "asking", log)
    other = Keeper(budget, MIB // 2, "other", log)
    asking.charge.resize(MIB)
    assert log == ["other"]
    assert (asking.charge.amount, other.charge.amount) == (MIB, 0)
    with pytest.raises(LimitError):
        asking.charge.resize(MIB + 1)
    assert asking.charge.amount == MIB


def test_charges_without_evict_stay():
    budget, log = MemoryBudget("1MiB"), []
    fixed = budget.charge(MIB // 2, "fixed")
    keeper = Keeper(budget, MIB // 4, "a", log)
    with pytest.raises(LimitError):
        budget.charge(MIB, "a block")
    assert fixed.amount == MIB // 2
    assert budget.used == fixed.amount + keeper.charge.amount
    fixed.touch()  # harmless
    assert budget.fits(MIB // 2)
    assert not budget.fits(MIB // 2 + 1)


def test_released_charges_are_not_asked_to_go():
    budget, log = MemoryBudget("1MiB"), []
    keeper = Keeper(budget, MIB // 2, "a", log)
    keeper.charge.release()
    fixed = budget.charge(MIB, "fixed")
    with pytest.raises(LimitError):
        budget.charge(1, "one more")
    assert log == []
    fixed.release()


def test_forgetful_evict_is_made_up_for():
    budget = MemoryBudget("1MiB")
    forgetful = budget.charge(MIB, "forgetful", lambda: None)
    held = budget.charge(MIB, "a block")
    assert forgetful.amount == 0
    assert budget.used == MIB
    held.release()


def test_fits_counts_what_can_be_evicted_and_evicts_nothing():
    budget, log = MemoryBudget("1MiB"), []
    assert budget.fits(MIB)
    assert not budget.fits(MIB + 1)
    keeper = Keeper(budget, MIB // 2, "a", log)
    assert budget.fits(MIB)
    fixed = budget.charge(MIB // 2, "fixed")
    assert budget.fits(MIB // 2)
    assert not budget.fits(MIB // 2 + 1)
    assert log == []
    assert budget.used == MIB
    keeper.charge.release(), fixed.release()


def test_dropped_evictable_charges_leave_nothing_behind():
    budget = MemoryBudget("1MiB")
    for _ in range(100):
        budget.charge(10, "retained", lambda: None)
    empty = budget.charge(0, "retained", lambda: None)
    del empty
    many = [budget.charge(10, "retained", lambda: None) for _ in range(100)]
    del many
    gc.collect()
    assert budget.used == 0
    assert not budget._evictable


def test_evict_may_free_other_charges():
    budget = MemoryBudget("1MiB")
    table: dict[str, object] = {}

    def drop_all() -> None:
        for charge in table.values():
            charge.release()

    table["a"] = budget.charge(MIB // 2, "a", drop_all)
    table["b"] = budget.charge(MIB // 2, "b", drop_all)
    held = budget.charge(MIB // 2, "c")
    assert budget.used == MIB // 2
    held.release()


def test_threads_leave_the_books_balanced():
    budget, errors = MemoryBudget("1MiB"), []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        kept = []
        try:
            for _ in range(600):
                match rng.randrange(4):
                    case 0:
                        kept.append(budget.charge(rng.randrange(1000), "fixed"))
                    case 1:
                        kept.append(budget.charge(rng.randrange(1000), "evictable", lambda: None))
                    case 2 if kept:
                        kept[rng.randrange(len(kept))].touch()
                    case 3 if kept:
                        kept.pop(rng.randrange(len(kept))).release()
                if len(kept) > 40:
                    kept[:20] = []
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert not errors
    assert budget.used == 0
    assert 0 < budget.peak <= budget.limit


def test_one_charge_released_from_many_threads_counts_once():
    for _ in range(30):
        budget = MemoryBudget("1MiB")
        charge = budget.charge(1000, "a block")
        start = threading.Barrier(4)

        def release(charge=charge, start=start) -> None:
            start.wait()
            charge.release()

        threads = [threading.Thread(target=release) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert budget.used == 0


def test_threads_never_pass_the_limit():
    budget, over = MemoryBudget("1MiB"), []

    def work() -> None:
        for _ in range(300):
            try:
                with budget.charge(MIB // 3, "a block"):
                    if budget.used > budget.limit:
                        over.append(budget.used)
            except LimitError:
                pass

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not over
    assert budget.peak <= budget.limit
    assert budget.used == 0
