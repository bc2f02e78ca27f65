"""Where a judge's seconds go."""

from orbit_remote.judge.stopwatch import Stopwatch


def test_a_moment_counts_for_the_innermost_stage() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)
    now = 5.0  # of no stage
    with watch.during("rounds"):
        now += 2
        with watch.during("draws"):
            now += 1
        now += 4
    with watch.during("draws"):
        now += 0.5
    assert watch.seconds == {"rounds": 6.0, "draws": 1.5}
