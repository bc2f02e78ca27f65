"""The garbage collector does not look at what a long scan made: that would hold up the event loop for seconds."""

import gc

import pytest

from orbit_lsp.kernels.collector_pause import MANY, collector_pause


@pytest.mark.parametrize(("count", "looked_at"), [(MANY // 2, True), (2 * MANY, False)])
def test_the_collector_never_looks_at_what_a_long_scan_made(count: int, looked_at: bool) -> None:
    made: list[list[object]] = []
    gc.collect()
    with collector_pause():
        before = gc.get_stats()
        made += ([] for _ in range(count))
        assert gc.get_stats() == before
    assert any(get_object is made[-1] for get_object in gc.get_objects()) == looked_at


def test_the_collector_goes_on_after_the_last_of_two_scans_and_after_one_that_fails() -> None:
    with collector_pause():
        with pytest.raises(ZeroDivisionError), collector_pause():
            raise ZeroDivisionError
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collector_pause():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
