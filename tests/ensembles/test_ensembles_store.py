"""A store holds every member once, whatever was killed on the way.

A store of another run, and a disk that is full, are errors.
"""

import functools
import itertools
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import zarr

from jaxquat import ensembles
from jaxquat.ensembles import chunks

KEY = jax.random.key(3)
REDUCE = (
    ensembles.mean(),
    ensembles.quantiles([0.1, 0.9]),
    ensembles.largest(3, lambda out: out["x"]),
)


def draw(key):
    return jax.random.normal(key, (3,), jnp.float32)


def simulate(x):
    """Fails for one member in six."""
    return {"x": jnp.where(x[0] > 1, jnp.nan, jnp.sum(x)), "all": {"x": x, "up": x[1] > 0}}


def run(store=None, simulate=simulate, n=1000, key=KEY, **options):
    options = {"chunk": 96, "reduce": REDUCE, "progress": False, "store": store} | options
    return ensembles.run(key, draw, simulate, n, **options)


whole = functools.cache(run)
"""The run without a store."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """``finished(folder)`` is a copy of a finished store there."""
    original = tmp_path_factory.mktemp("finished") / "store"
    run(original)
    return lambda folder: shutil.copytree(original, folder / "store")


def same(a, b):
    chex.assert_trees_all_equal((a.result, a.failed_index), (b.result, b.failed_index))
    keys = (jax.random.key_data(found.failed_key) for found in (a, b))
    np.testing.assert_array_equal(*keys)


def interrupted(after):
    """A reducer that ends the run at a chunk."""
    seen = []

    def summarise(rows, index):
        seen.append(index)
        if len(seen) > after + 1:  # the first summary is of no member
            raise KeyboardInterrupt
        return ()

    return ensembles.Reducer(summarise, lambda a, b: (), lambda summary: summary)


def test_the_store_holds_every_member(tmp_path):
    found = run(tmp_path / "store")
    same(found, whole())
    group = zarr.open_group(tmp_path / "store", mode="r")
    drawn = np.asarray(jax.jit(lambda: ensembles.members(KEY, draw, 1000))())
    np.testing.assert_allclose(group["all/x"][:], drawn, atol=3e-7)
    np.testing.assert_array_equal(group["all/up"][:], group["all/x"][:, 1] > 0)
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(group["x"][:])), found.failed_index)
    assert 100 < len(found.failed_index) < 220


def test_a_finished_store_answers_without_a_simulation(tmp_path, monkeypatch, finished):
    finished(tmp_path)
    wanted = whole()
    monkeypatch.setattr(chunks, "compiled", None)
    same(run(tmp_path / "store"), wanted)
    most = ensembles.largest(1, lambda out: out["x"])
    other = run(tmp_path / "store", reduce=most, chunk=None).result
    assert other.value[0] == zarr.open_group(tmp_path / "store")["x"][:][other.members[0]]


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "store", reduce=interrupted(4))
    not_simulated = zarr.open_group(tmp_path / "store", mode="r")["x"][900:]
    assert np.isnan(not_simulated).all()
    numbers, within_memory = [], chunks.within_memory

    def counted(experiment, size):
        program = within_memory(experiment, size)
        return lambda data, first: numbers.append(int(first)) or program(data, first)

    monkeypatch.setattr(chunks, "within_memory", counted)
    same(run(tmp_path / "store"), run())
    assert numbers[:6] == [96 * k for k in range(5, 11)]  # chunks 0 to 4 were there
    assert numbers[6:] == [96 * k for k in range(11)]  # the run without a store


def test_zarr_lists_a_store_without_a_warning(tmp_path, finished):
    finished(tmp_path)
    group = zarr.open_group(tmp_path / "store", mode="r")
    names = [name for name, _ in group.members(max_depth=None)]
    assert sorted(names) == ["all", "all/up", "all/x", "x"]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int4])
def test_a_store_holds_every_dtype_exactly(tmp_path, dtype):
    """Zarr has no bfloat16 and no int4: they lie in the store as float32 and int32."""

    def narrow(x):
        return {"x": (3 * x[0]).astype(dtype), "y": x[1]}

    options = {"simulate": narrow, "reduce": ensembles.mean()}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "store", simulate=narrow, reduce=interrupted(4))
    resumed, whole = run(tmp_path / "store", **options), run(**options)
    same(resumed, whole)
    kept = zarr.open_group(tmp_path / "store", mode="r")["x"][:]
    np.testing.assert_array_equal(kept, np.asarray(kept).astype(dtype).astype(kept.dtype))
    np.testing.assert_allclose(np.mean(kept, dtype=float), whole.result.mean["x"], rtol=1e-12)


# Stopped by a rule

RULE = ensembles.standard_error(lambda out: out["all"]["x"], 0.05)
"""It needs some 400 members that did not fail, so 480 or so: five or six chunks of 96."""


def test_a_stopped_store_is_that_of_as_many_members(tmp_path):
    stopped = run(tmp_path / "stopped", until=RULE)
    assert stopped.n in {384, 480, 576}
    fixed = run(tmp_path / "fixed", n=stopped.n)
    same(stopped, fixed)
    a, b = (zarr.open_group(tmp_path / name, mode="r") for name in ("stopped", "fixed"))
    for name in ("x", "all/x", "all/up"):
        np.testing.assert_array_equal(a[name][: stopped.n], b[name][:])
    assert np.isnan(a["all/x"][stopped.n :]).all()
    digests = [tmp_path / name / "all/up" / "digests" for name in ("stopped", "fixed")]
    assert digests[0].read_bytes() == digests[1].read_bytes()


def test_a_killed_run_stops_where_it_would_have_stopped(tmp_path):
    whole = run(until=RULE)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "store", until=RULE, reduce=interrupted(2))
    resumed = run(tmp_path / "store", until=RULE)
    same(resumed, whole)
    chex.assert_trees_all_equal(resumed.statistic, whole.statistic)
    assert (resumed.n, resumed.met) == (whole.n, True)


def test_a_stopped_store_answers_without_a_simulation_and_goes_on(tmp_path, monkeypatch):
    """A rule that its members do not meet, and no rule, simulate the others."""
    stopped = run(tmp_path / "store", until=RULE)
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "compiled", None)
        same(run(tmp_path / "store", until=RULE), stopped)
    stricter = ensembles.standard_error(lambda out: out["all"]["x"], 0.04)
    further = run(tmp_path / "store", until=stricter)
    same(further, run(until=stricter))
    assert stopped.n < further.n < 1000
    same(run(tmp_path / "store"), whole())


def test_a_rule_reads_only_as_much_of_a_store_as_it_needs(tmp_path, monkeypatch, finished):
    wanted = run(until=RULE)
    finished(tmp_path)
    (tmp_path / "store" / "x" / "c" / "10").unlink()
    monkeypatch.setattr(chunks, "compiled", None)
    found = run(tmp_path / "store", until=RULE)
    same(found, wanted)
    assert found.n == wanted.n


# Damaged


def files(store, kind):
    """The files of a store that hold chunks, descriptions or digests."""
    every = sorted(file for file in store.rglob("*") if file.is_file())
    kinds = {"zarr.json": "description", "digests": "digests"}
    return [file for file in every if kinds.get(file.name, "chunk") == kind]


def flip(file, bit):
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def check_flips(folder, count):
    """Every flip is an error, or changes nothing. Returns how many are errors, for each kind."""
    rng, whole = np.random.default_rng(0), run(folder / "store")
    shutil.copytree(folder / "store", folder / "copy")
    errors = {"chunk": [], "description": [], "digests": []}
    for kind in errors:
        for _ in range(count):
            file = rng.choice(files(folder / "store", kind))
            bit = int(rng.integers(8 * file.stat().st_size))
            flip(file, bit)
            try:
                same(run(folder / "store"), whole)
            except ValueError as error:
                errors[kind].append(str(error))
            if kind == "digests":  # a lost end of a line makes the last chunk incomplete
                shutil.rmtree(folder / "store")
                shutil.copytree(folder / "copy", folder / "store")
            else:
                flip(file, bit)
    for message in itertools.chain(*errors.values()):
        assert message.startswith("store: wanted ")
    return {kind: len(messages) for kind, messages in errors.items()}


def test_a_flipped_bit_never_changes_a_statistic_in_silence(tmp_path):
    refused = check_flips(tmp_path, 6)
    assert refused["chunk"] == refused["digests"] == 6


@pytest.mark.slow
@pytest.mark.weekly
def test_a_flipped_bit_never_changes_a_statistic_in_silence_often(tmp_path):
    refused = check_flips(tmp_path, 60)
    assert refused["chunk"] > 50  # zarr and zstd have a few bits without a meaning
    assert refused["description"] > 30


def test_a_lost_chunk_is_named_and_the_call_goes_on_without_its_line(tmp_path, finished):
    """Zarr would give NaN for it, and the members would count as failed."""
    finished(tmp_path)
    (tmp_path / "store" / "x" / "c" / "3").unlink()
    digests = tmp_path / "store" / "all/up" / "digests"
    message = (
        r"^store: wanted chunks as they were written, got chunk 3 in .*store \(members 288 to 383\)"
        rf", which is not as it was written; remove the lines from 4 on in {digests}, and the same "
    )
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "store")
    digests.write_bytes(b"".join(digests.read_bytes().splitlines(keepends=True)[:3]))
    same(run(tmp_path / "store"), whole())


# Two at once


def test_a_second_run_on_one_store_is_refused_by_name(tmp_path):
    """The second begins within a reducer of the first, which then goes on."""
    refused, seen = [], []

    def summarise(rows, index):
        seen.append(index)
        if len(seen) == 4:
            with pytest.raises(BlockingIOError) as caught:
                run(tmp_path / "store")
            refused.append(str(caught.value))
        return ()

    nested = ensembles.Reducer(summarise, lambda a, b: (), lambda summary: summary)
    run(tmp_path / "store", reduce=nested)
    (message,) = refused
    writer = f"process {os.getpid()} on {socket.gethostname()}"
    assert message == (
        f"store: wanted a folder to which nobody else writes, got {tmp_path / 'store'}, to which "
        f"{writer} is writing; wait until it has ended, or give another folder"
    )
    assert not list(tmp_path.rglob("*lock*"))


def test_a_finished_store_may_be_read_by_many(tmp_path, finished):
    finished(tmp_path)
    results = []
    again = ensembles.Reducer(
        lambda rows, index: results.append(run(tmp_path / "store")) if len(index) else None,
        lambda a, b: None,
        lambda summary: summary,
    )
    run(tmp_path / "store", reduce=again)
    assert len(results) == 11
    same(results[-1], whole())


# Killed

PROGRAM = """
import sys
sys.path.insert(0, {here!r})
import jax
jax.config.update("jax_enable_x64", True)
import test_ensembles_store as t
t.run(sys.argv[1], n=6000)
"""


def killed(store, times, seed):
    """How often a run was killed, at most ``times``, before one came to its end.

    It is killed at random moments, after at least one chunk more than the run before.
    """
    program = PROGRAM.format(here=os.path.dirname(__file__))
    rng, kills = np.random.default_rng(seed), 0
    while True:
        process = subprocess.Popen([sys.executable, "-c", program, str(store)])
        before = progress(store)
        while process.poll() is None and kills < times:
            time.sleep(0.002)
            if progress(store) > before:  # a chunk takes some milliseconds
                time.sleep(rng.uniform(0.0, 0.2 / times))
                process.send_signal(signal.SIGKILL)
                kills += process.wait() == -signal.SIGKILL
        if process.wait() == 0:
            return kills


def progress(store):
    digests = list(store.rglob("digests"))
    return digests[0].read_bytes().count(b"\n") if digests else -1


def check_killed(tmp_path, times, seed):
    assert killed(tmp_path / "store", times, seed) == times
    whole = run(tmp_path / "whole", n=6000)
    same(run(tmp_path / "store", n=6000), whole)
    a, b = (zarr.open_group(tmp_path / folder, mode="r") for folder in ("store", "whole"))
    for name in ("x", "all/x", "all/up"):
        np.testing.assert_array_equal(a[name][:], b[name][:])


@pytest.mark.slow
def test_killed_once(tmp_path):
    check_killed(tmp_path, 1, 0)


@pytest.mark.slow
@pytest.mark.weekly
def test_killed_ten_times(tmp_path):
    check_killed(tmp_path, 10, 1)


def test_killed_while_the_store_was_made(tmp_path):
    (tmp_path / ".store.creating" / "x").mkdir(parents=True)
    same(run(tmp_path / "store"), whole())
    assert [path.name for path in tmp_path.iterdir()] == ["store"]


# Refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 1001}, "n 1001 here, 1000 there"),
        ({"chunk": 48}, "chunk 48 here, 96 there"),
        (
            {"key": jax.random.key(4)},
            "key ['threefry2x32', 0, 4] here, ['threefry2x32', 0, 3] there",
        ),
        (
            {"simulate": lambda x: {"x": x}, "reduce": None},
            "outputs {'x': [[3], 'float32']} here, {'all/up'",
        ),
    ],
)
def test_a_store_of_another_run(tmp_path, changes, message, finished):
    finished(tmp_path)
    wanted = "store: wanted a new folder or the store of this run"
    with pytest.raises(ValueError, match=wanted) as caught:
        run(tmp_path / "store", **changes)
    assert message in str(caught.value)


def test_another_members_store(tmp_path):
    four, options = lambda key: jax.random.normal(key, (4,)), {"store": tmp_path / "store"}
    ensembles.run(KEY, four, lambda x: x[0], 10, progress=False, **options)
    message = r"member \{.*\[\[3\], 'float32'\]\} here, \{.*\[\[4\], 'float64'\]\} there"
    with pytest.raises(ValueError, match=message):
        ensembles.run(KEY, draw, lambda x: x[0].astype(float), 10, progress=False, **options)


def test_what_is_no_store(tmp_path):
    zarr.open_group(tmp_path / "group", mode="w")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("text")
    for name in ("group", "folder", "file"):
        message = f"store: wanted .* the store of an ensemble, got .*{name}, which is neither"
        with pytest.raises(ValueError, match=message):
            run(tmp_path / name)
    assert (tmp_path / "file").read_text() == "text"


def test_a_store_beside_a_folder_that_is_not_there(tmp_path):
    """Its path goes through that folder and out again."""
    found = run(tmp_path / "absent" / ".." / "store")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store"]
    same(found, run(tmp_path / "store"))


def test_room_is_no_way_out_below_a_file(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(OSError, match=r"^\[Errno \d+\] store: could not be written \([^;]*\)$"):
        run(tmp_path / "file" / "store")


def test_without_zarr(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    message = r'^store: wanted the package zarr, got none: pip install "jaxquat\[store\]"$'
    with pytest.raises(ImportError, match=message):
        run(tmp_path / "store")


def test_a_full_disk(tmp_path):
    """No file may grow beyond 2.5 KB.

    The arrays of 512 members of 4 bytes still fit, those of 12 bytes do not.
    """
    message = (
        r"store: could not be written \(File too large\); with room in .* the same call resumes"
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2500, hard))
    try:
        with pytest.raises(OSError, match=message):
            run(tmp_path / "store", chunk=512)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    same(run(tmp_path / "store", chunk=512), run(chunk=512))
