"""Measuring next to other programs: with clocks, calls and a load that are made for it."""

import itertools
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import glasshead as gh
from glasshead.attention import load, profiles, tuning
from glasshead.attention.cost import work_of
from glasshead.attention.load import Reading, between

SECONDS = 0.07
QUIET = profiles.shipped("zen3")
# Calls of a round: 4 dtypes, 2 engines, 2 passes, 6 shapes, and two more.
ROUND = 98


@dataclass
class World:
    """Two processors, whose calls take SECONDS of the clock and return what Zen 5 takes.

    Attributes:
        others: Processors that others take in the call of a number, counted from 0.
        slower: How much longer a call of a number takes than it should.
        told: Whether the system reports its load.
    """

    others: dict[int, float] = field(default_factory=dict)
    always: float = 0.0
    slower: dict[int, float] = field(default_factory=dict)
    told: bool = True
    processors: int = 2
    wall: float = 0.0
    own: float = 0.0
    busy: float = 0.0
    calls: int = 0

    def reading(self):
        idle = self.processors * self.wall - self.busy
        system = (self.busy, idle) if self.told else None
        return Reading(self.wall, self.own, system, self.processors)

    def call(self, seconds):
        taken = self.others.get(self.calls, self.always)
        slower = self.slower.get(self.calls, 7.0 if taken else 1.0)
        self.wall += SECONDS
        self.own += SECONDS
        self.busy += SECONDS * (1 + taken)
        self.calls += 1
        return seconds * slower


@pytest.fixture
def world(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    world = World()
    times: tuning.Times = {("copy",): 1e-9 * 8 * tuning._COPIED / QUIET.bandwidth}
    for dtype, engine, way, shape in itertools.product(
        profiles.DTYPES, tuning.ENGINES, tuning.WAYS, tuning.SHAPES
    ):
        speed = QUIET.speeds[dtype][engine][way]
        work = work_of(tuning._problem(shape, dtype), engine)
        least = shape.name == "call"
        times[dtype, engine, way, shape.name] = 1e-6 * speed.call if least else speed.seconds(work)
    own = times["float32", "streaming", "forward", "call"]
    times["operator",] = own + 1e-6 * QUIET.operator
    # The default argument binds each time.
    calls = {key: lambda one=one: world.call(one) for key, one in times.items()}
    monkeypatch.setattr(tuning, "measurements", lambda _: calls)
    monkeypatch.setattr(load, "reading", world.reading)
    return world


def is_quiet(profile):
    """Whether a profile has the numbers that were measured while nobody disturbed."""
    found = profiles.parsed(profile)
    return all(
        found.speeds[dtype][engine][way]
        == pytest.approx(QUIET.speeds[dtype][engine][way], rel=0.02)
        for dtype in profiles.DTYPES
        for engine in tuning.ENGINES
        for way in tuning.WAYS
    )


def stored():
    return json.loads(profiles.own_file().read_text("utf-8"))


def test_a_quiet_machine_is_measured_in_two_rounds_or_more(world):
    shares = []
    tuned = gh.tune(1, shares.append)
    assert stored() == tuned.profile
    assert tuned.profile["how"] == "glasshead tune"
    assert is_quiet(tuned.profile)
    # Two rounds, and the last calls of a round again until a stretch is full.
    assert 2 * ROUND <= world.calls <= 2 * (ROUND + 5)
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_result_shows_its_ratios_as_a_table(world):
    del world
    tuned = gh.tune(1)
    lines = str(tuned).splitlines()
    assert lines[0] == "Streaming's time as a multiple of SDPA's"
    for shape in tuning.SHAPES:
        for way, name in (("forward", "forward"), ("both", "with gradients")):
            (row,) = [line for line in lines if line.startswith(shape.about) and name in line]
            expected = [f"{tuned.ratios[dtype][way][shape.name]:.2f}" for dtype in profiles.DTYPES]
            assert row.split()[-4:] == expected
            assert all(f">{ratio}<" in tuned._repr_html_() for ratio in expected)
    assert lines[-1] == f"{profiles.machine().processor}, 2 threads, torch {torch.__version__}"


def test_more_time_is_used_for_more_rounds(world):
    gh.tune(37)
    assert 37 - ROUND * SECONDS - 1 <= world.wall <= 37


def test_the_seconds_by_default_suffice_for_a_round_of_six_seconds(world):
    gh.tune()
    assert world.calls >= 2 * ROUND
    assert world.wall <= tuning.SECONDS < 20


def test_a_disturbed_stretch_is_measured_again(world):
    world.others = dict.fromkeys(range(ROUND + 11, ROUND + 29), 0.9)
    tuned = gh.tune(1)
    assert tuned.profile["how"] == "glasshead tune"
    assert is_quiet(tuned.profile)
    assert world.calls >= 2 * ROUND + 18


def test_a_round_that_is_disturbed_as_a_whole_is_measured_again(world):
    world.others = dict.fromkeys(range(ROUND, 3 * ROUND), 1.3)
    assert is_quiet(gh.tune(17).profile)


@pytest.mark.parametrize("round_", [0, 1])
def test_one_outlier_that_no_load_explains_changes_nothing(world, round_):
    # float32 and bfloat16, of both engines.
    world.slower = dict.fromkeys(range(ROUND * round_ + 3, ROUND * round_ + 37), 11.0)
    assert is_quiet(gh.tune(1).profile)


@pytest.mark.parametrize("earlier", [None, b'{"of": "before"}\n'])
def test_a_loaded_machine_is_refused_and_the_earlier_profile_stays(world, earlier):
    world.always = 0.7
    file = profiles.own_file()
    if earlier is not None:
        file.parent.mkdir(parents=True)
        file.write_bytes(earlier)
    with pytest.raises(
        tuning.LoadedError,
        match=r"^The machine must be quiet to be measured, but other programs kept 0\.7 of 2 "
        r"processors busy; close them and try again, or pass loaded=True to measure "
        r"all the same\.$",
    ) as refused:
        gh.tune(5)
    assert refused.value.taken == pytest.approx(0.7)
    assert (file.read_bytes() if file.exists() else None) == earlier
    # It was tried for as long as measuring takes, and not for much longer.
    assert 5 < world.wall < 6


def test_few_seconds_are_no_reason_to_try_once(world):
    world.others = dict.fromkeys(range(5 * 5), 1.9)
    assert is_quiet(gh.tune(1).profile)


def test_whoever_insists_gets_a_profile_that_states_the_load(world):
    world.always = 0.7
    tuned = gh.tune(1, loaded=True)
    how = "glasshead tune --loaded, while other programs kept 0.7 of 2 processors busy"
    assert stored()["how"] == tuned.profile["how"] == how
    assert not is_quiet(tuned.profile)


def test_insisting_on_a_quiet_machine_changes_nothing(world):
    tuned = gh.tune(1, loaded=True)
    assert tuned.profile["how"] == "glasshead tune"
    assert is_quiet(tuned.profile)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_system_that_does_not_report_its_load_is_measured_without_a_check(world, loaded):
    world.told, world.always = False, 0.7
    tuned = gh.tune(1, loaded=loaded)
    assert stored()["how"] == tuned.profile["how"] == tuning.UNCHECKED


@pytest.mark.parametrize(
    ("processors", "taken", "refused"),
    [(2, 0.2, False), (4, 0.3, True), (7, 3.2, False), (7, 3.3, True)],
)
def test_others_may_take_the_processors_that_no_core_of_a_thread_has(
    world, processors, taken, refused
):
    world.processors, world.always = processors, taken
    if refused:
        with pytest.raises(tuning.LoadedError):
            gh.tune(1)
    else:
        assert gh.tune(1).profile["how"] == "glasshead tune"


def test_the_profile_of_a_loaded_machine_is_read(world):
    world.always = 0.7
    gh.tune(1, loaded=True)
    own = profiles._own()
    assert own is not None
    assert own.name == "measured here"


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        (Reading(0, 0, (0, 0), 3), Reading(5, 7, (11, 4), 3), 0.8),
        # The process counts a little more than the system.
        (Reading(0, 0, (0, 0), 3), Reading(5, 7, (6.9, 8), 3), 0.0),
        (Reading(0, 0, None, 3), Reading(5, 7, (11, 4), 3), None),
        (Reading(0, 0, (2, 3), 3), Reading(5, 7, (2, 3), 3), None),
        (Reading(0, 0, (900, 3), 3), Reading(5, 7, (2, 3), 3), None),
        (Reading(5, 7, (2, 3), 3), Reading(5, 7, (2, 3), 3), None),
    ],
)
def test_what_others_took_is_the_busy_time_that_is_not_ours(before, after, taken):
    assert between(before, after).taken == (None if taken is None else pytest.approx(taken))


STAT = """\
cpu  90 90 90 90 90 90 90 90 90 90
cpu0 90 90 90 90 90 90 90 90 90 90
cpu1 101 7 13 1009 5 2 3 17 50 1
cpu11 211 11 19 2003 3 1 5 23 0 0
intr 8
"""


def test_linux_counts_the_processors_at_hand_and_stolen_time(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 11}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100, raising=False)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: STAT)
    found = load.reading()
    assert found.processors == 2
    # user + nice + system + irq + softirq + steal, and idle + iowait.
    assert found.system == pytest.approx((1.43 + 2.70, 10.14 + 20.06))


@pytest.mark.parametrize("text", ["", "cpu0 1 2\n", "cpu0 a b c d\n", None])
def test_a_linux_that_does_not_report_it_is_one_without_a_load(monkeypatch, text):
    def read(*_, **__):
        if text is None:
            raise PermissionError(13, "Permission denied")
        return text

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    monkeypatch.setattr(Path, "read_text", read)
    later = load.reading()
    assert between(later, later._replace(wall=later.wall + 3)).taken is None


def test_macos_counts_ticks_of_all_processors(monkeypatch):
    import ctypes

    class System:
        def mach_host_self(self):
            return 3

        def host_statistics(self, host, flavor, ticks, count):
            assert (host, flavor, count._obj.value) == (3, 3, 4)
            ticks[:] = [101, 211, 1009, 7]
            return 0

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(ctypes, "CDLL", lambda _: System())
    monkeypatch.setattr(os, "cpu_count", lambda: 11)
    found = load.reading()
    assert (found.system, found.processors) == (pytest.approx((3.19, 10.09)), 11)


def test_other_systems_do_not_report_it(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert load.reading().system is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc/stat")
def test_the_readings_of_this_machine_never_go_back():
    before, after = load.reading(), load.reading()
    assert before.system is not None
    assert after.system is not None
    assert all(then >= now for now, then in zip(before.system, after.system, strict=True))
    assert before.processors == len(os.sched_getaffinity(0))
