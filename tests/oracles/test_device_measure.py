"""The judge's own kernels find on a device what the host finds: in the emulator, and on a GPU where there is one."""

import ctypes
import dataclasses
import math
from contextlib import closing

import numpy as np
import pytest

from kernel_assay.corpus.errors import UsageError
from kernel_assay.corpus.formats import FORMATS
from kernel_assay.kernels.backends.cuda_support.driver import device_count
from kernel_assay.kernels.backends.simt import emulator
from kernel_assay.kernels.backends.simt.toolchain import Mode, missing
from kernel_assay.oracles.device import measure as module
from kernel_assay.oracles.device.gpu import Gpu
from kernel_assay.oracles.device.measure import SOURCE, Plan, Question, Tensor, compare, tuning
from kernel_assay.oracles.judging import measure_numpy
from kernel_assay.oracles.judging.failure_detail import COLUMNS, LINES
from kernel_assay.oracles.judging.measure import measure
from kernel_assay.oracles.spec.contract import INTERVAL, NAN, NINF, PINF, ZERO

TILE = 32 * tuning()["WORDS"] * 2
"""Elements of a tile of a 16-bit format; others have half as many."""
ENTRIES = ("walk", "walk_float32", "locate", "peers_float32", "peers_float16", "peers_bfloat16")
FAST = ("float32", "float16", "bfloat16")
SUMS = {"nmse", "cosine", "psnr", "z"}


@pytest.fixture(scope="module")
def simt_cache(tmp_path_factory, emulator):
    """As that of tests/kernels, in the same folder."""
    if why := missing():
        pytest.skip(why)
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if base.name.startswith("popen-") else base) / "simt"
    home.mkdir(exist_ok=True)
    emulator(home)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(home))
        yield


class Emulated:
    """A device on the CPU; whatever the emulator says of a kernel is an error."""

    multiprocessors = 1

    def __init__(self, mode):
        self.mode, self.order, self.memory, self.launched = mode, "identity", {}, []
        self.program = emulator.Program(SOURCE, ENTRIES)

    def take(self, size):
        room = np.full(max(size, 1) + 512, 0xA5, np.uint8)
        address = -(-room.ctypes.data // 256) * 256
        self.memory[address] = (room, max(size, 1))
        return address

    def free(self, address):
        del self.memory[address]

    def zero(self, address, size):
        ctypes.memset(address, 0, size)

    def send(self, address, data):
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def fetch(self, address, data):
        ctypes.memmove(data.ctypes.data, address, data.nbytes)

    def launch(self, kernel, blocks, threads, arguments):
        self.launched.append((kernel, blocks))
        kernels = self.program.module(self.mode)
        how = emulator._Launch(grid=(blocks, 1, 1), block=(threads, 1, 1))
        how.order, how.seed = emulator.ORDERS.index(self.order), 1
        if self.mode is Mode.CHECK:
            regions = [emulator._Region(address, size, 0) for address, (_, size) in self.memory.items()]
            how.check, how.region_count, how.shared_count = 1, len(regions), len(kernels._arrays)
            how.regions, how.shared_arrays = (emulator._Region * len(regions))(*regions), kernels._arrays
        given = [
            emulator.Argument(address=a.value) if isinstance(a, ctypes.c_void_p) else emulator.Argument(whole=a.value)
            for a in arguments
        ]
        launch = kernels._launches[ENTRIES.index(kernel)]
        launch(ctypes.byref(how), (emulator.Argument * len(given))(*given))
        for fault in (how.fault, how.warning):
            said = f"{fault.file.decode()}:{fault.line}: {fault.text.decode()}"
            assert not fault.trouble, f"{kernel}: {emulator.Trouble(fault.trouble).name} {said}"


@pytest.fixture(scope="module", params=["fast", "check", "gpu"])
def device(request):
    if request.param == "gpu":
        if not device_count():
            pytest.skip("no GPU")
        yield (gpu := Gpu(0, SOURCE.read_text()))
        gpu.close()
    else:
        request.getfixturevalue("simt_cache")
        yield Emulated(Mode.FAST if request.param == "fast" else Mode.CHECK)


@pytest.fixture(scope="module")
def fast_device(simt_cache):
    return Emulated(Mode.FAST)


class Held:
    """Arrays in device memory, `shift` bytes behind an aligned address."""

    def __init__(self, device):
        self.device, self.taken = device, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for address in self.taken:
            self.device.free(address)

    def tensor(self, array, shift=0):
        if not isinstance(array, np.ndarray):
            return array
        array = np.ascontiguousarray(array)
        self.taken.append(self.device.take(array.nbytes + shift))
        self.device.send(self.taken[-1] + shift, array)
        return Tensor(self.taken[-1] + shift, array.dtype, array.shape)


def answer(device, got, want, error, slope=None, accept=None, sigma=None, shifts=(0, 0)):
    with Held(device) as held:
        tensors = held.tensor(got, shifts[0]), held.tensor(want, shifts[1])
        return compare(device, Question(*tensors, *map(held.tensor, (error, slope, accept, sigma))))


def on_host(got, want, error, slope=None, accept=None, sigma=None):
    with np.errstate(all="ignore"):
        wide = want.astype(np.float64) if slope is not None else want
        allowed = error if slope is None else error + slope * np.abs(wide)
        return measure(got, wide, allowed, accept, sigma)


def agree(ours, host):
    for name, value in dataclasses.asdict(host).items():
        if name in SUMS and value is not None and math.isfinite(value):
            assert getattr(ours, name) == pytest.approx(value, rel=1e-6, abs=1e-9 if name == "cosine" else 0), name
        else:
            assert getattr(ours, name) == value, name


def failing_cells(got, want, error, slope=None, accept=None):
    bad = np.zeros(got.size, np.int64)
    for i in range(got.size):
        at = [row.reshape(-1)[i] if isinstance(row, np.ndarray) else row for row in (error, accept)]
        part = got.reshape(-1)[i : i + 1], want.reshape(-1)[i : i + 1]
        bad[i] = on_host(*part, at[0], slope, None if at[1] is None else int(at[1])).bad
    matrix = bad.reshape(-1, got.shape[-1])
    tall, wide = -(-matrix.shape[0] // LINES), -(-matrix.shape[1] // COLUMNS)
    rows = np.add.reduceat(matrix, np.arange(0, matrix.shape[0], tall), axis=0)
    return np.add.reduceat(rows, np.arange(0, matrix.shape[1], wide), axis=1)


def check(device, got, want, error, **more):
    """Device and host agree, on cells too if few fail; what was found."""
    shifts = more.pop("shifts", (0, 0))
    found, host = answer(device, got, want, error, **more, shifts=shifts), on_host(got, want, error, **more)
    agree(found.measured, host)
    assert (found.cells is None) == (host.bad == 0)
    if found.cells is not None:
        assert found.cells.sum() == host.bad
        if got.size <= 4096:
            rest = {k: v for k, v in more.items() if k in {"slope", "accept"}}
            np.testing.assert_array_equal(found.cells, failing_cells(got, want, error, **rest))
    return host


def peers(name, size, steps=3, seed=1, scale=1.0):
    """Normal numbers and the same a few steps away."""
    rng = np.random.default_rng(seed)
    fmt = FORMATS[name]
    want = (rng.standard_normal(size) * scale).astype(fmt.dtype)
    bits = want.view(fmt.carrier).astype(np.int64) + rng.integers(-steps, steps + 1, size)
    return np.abs(bits).astype(fmt.carrier).view(fmt.dtype), want


def generous(name):
    return {"error": 1e-6, "slope": 16 * FORMATS[name].unit}


SIZES = [0, 1, 2, 31, 511, 512, 513, 1024, 5 * TILE + 17, 40 * TILE + 3]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FAST)
def test_peers_of_any_size(name, size, device):
    got, want = peers(name, size)
    assert check(device, got, want, **generous(name)).bad == 0


@pytest.mark.parametrize("name", FAST)
def test_the_fast_kernel_takes_what_is_ordinary(name, fast_device):
    got, want = peers(name, 33 * TILE)
    with Held(fast_device) as held:
        plan = Plan(fast_device, Question(held.tensor(got), held.tensor(want), *generous(name).values()))
        with closing(plan):
            plan.sweep()
            agree(plan.answer().measured, on_host(got, want, **generous(name)))
            left = np.empty(plan.tiles, np.uint8)
            fast_device.fetch(plan.left, left)
    assert len(plan.peers) > 0.9 * plan.size / plan.tile
    assert left.sum() == 0


def noted(device, got, want, error, slope):
    """What the kernel of peers noted, and how many tiles it left; the numbers must be the host's."""
    with (
        Held(device) as held,
        closing(Plan(device, Question(held.tensor(got), held.tensor(want), error, slope))) as plan,
    ):
        plan.sweep()
        agree(plan.answer().measured, on_host(got, want, error, slope))
        left = np.empty(plan.tiles, np.uint8)
        device.fetch(plan.left, left)
        return plan.notes(), int(left.sum()), plan.tiles


@pytest.mark.parametrize("name", FAST)
def test_notes_say_which_tiles_were_left_and_why(name, fast_device):
    got, want = peers(name, 60 * TILE, steps=0)
    notes, left, _ = noted(fast_device, got, want, **generous(name))
    assert left == sum(notes.values()) == 0
    got[41 * TILE], want[45 * TILE], got[47 * TILE + 8] = math.inf, math.nan, 37
    notes, left, _ = noted(fast_device, got, want, **generous(name))
    assert (left, notes["unusual"], notes["failing"]) == (3, 2, 1)
    assert notes["rho"] == notes["ratio"] == 1
    got[49 * TILE] = -want[49 * TILE]
    notes, left, _ = noted(fast_device, got, want, 8.0, 0.0)
    assert (left, notes["failing"], notes["far"]) == (3, 1, 1)


MOST_LOOKS = {"float32": 0.02, "float16": 0.4, "bfloat16": 0.1}
"""Of all tiles, at rho: for the least budget, until its largest is met by the few warps that there are here."""


@pytest.mark.parametrize("budget", [(32, 0), (4, 16), (2.0**-10, 16)])
@pytest.mark.parametrize("name", FAST)
def test_ordinary_noise_is_decided_at_first_sight(name, budget, fast_device):
    got, want = peers(name, 512 * TILE)
    error, slope = (factor * FORMATS[name].unit for factor in budget)
    notes, left, tiles = noted(fast_device, got, want, error, slope)
    assert left == 0
    assert notes["rho"] < MOST_LOOKS[name] * tiles
    assert notes["ratio"] + notes["ulps"] + notes["error"] < 0.08 * tiles


@pytest.mark.parametrize("budget", [(32, 0), (4, 16)])
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_what_another_warp_met_is_not_looked_at_again(name, budget, fast_device):
    """Each warp asks once what is known, and a glance decides nearly all of its other tiles."""
    got, want = peers(name, 1024 * TILE)
    rare = 0.06 if name == "float16" else 0.01  # numbers below the normal ones, by which others are divided
    notes, left, tiles = noted(fast_device, got, want, *(factor * FORMATS[name].unit for factor in budget))
    assert left == 0
    assert notes["unclear"] < 2 * WARPS + rare * tiles
    assert max(notes["ratio"], notes["rho"]) < WARPS + rare * tiles


@pytest.mark.parametrize("most", [0.25, 0.999999, 1.0, 1.000001, 1.5])
@pytest.mark.parametrize("name", FAST)
def test_ties_in_most_tiles_at_any_part_of_a_flat_budget(name, most, fast_device):
    """The largest excess, 2.5 ulps of 2, is in nearly each tile: within the budget, its equal, or beyond it."""
    got, want = peers(name, 60 * TILE)
    np.copyto(want, 1.5, where=np.abs(want) >= 4), np.copyto(got, 1.5, where=np.abs(got) >= 4)
    host = check(fast_device, got, want, 10 * FORMATS[name].unit / most, slope=0.0)
    assert (host.bad > 100) == (most > 1)


def few_steps(name, size, number, steps):
    """The same number again and again, and the one so many steps above it."""
    fmt = FORMATS[name]
    want = np.full(size, number, fmt.dtype)
    return (want.view(fmt.carrier) + fmt.carrier.type(steps)).view(fmt.dtype), want


@pytest.mark.parametrize(
    ("ties", "pair", "budget"),
    [
        (
            (3, 20),
            (4, 2, -19),
            (256, 0),
        ),  # 21 ulps of 2 less half a step of 4: half a step more than 20 less half of one
        ((1, 3), (1, -2, 4), (0, 32)),  # got below 1, want above: 4 steps, 6 ulps of 0.5 less half of one
    ],
)
@pytest.mark.parametrize("name", FAST)
def test_many_ties_do_not_hide_what_is_a_little_larger(name, ties, pair, budget, fast_device):
    """Each pair is the same, but for one, on both sides of a power of two."""
    unit, at, (middle, *offs) = FORMATS[name].unit, 50 * TILE + 77, pair
    got, want = few_steps(name, 60 * TILE, *ties)
    got[at], want[at] = (middle * (1 + off * unit) for off in offs)
    error, slope = (factor * unit for factor in budget)
    assert check(fast_device, got, want, error, slope=slope).rho_index == at


@pytest.mark.parametrize("offs", [(-1, 10), (0, -11)])
@pytest.mark.parametrize("name", FAST)
def test_a_pair_about_a_power_of_two_may_have_the_largest_rho_for_its_narrow_cell(name, offs, fast_device):
    """Both pairs are 11 ulps of 0.5 apart, and got is no larger than 1; nothing else in the tile differs."""
    unit, at = FORMATS[name].unit, 50 * TILE + 77
    got, want = few_steps(name, 60 * TILE, 1.11 if name == "bfloat16" else 1.07, 6)
    got[50 * TILE : 51 * TILE] = want[0]
    got[at], want[at] = (1 + off * unit for off in offs)
    assert check(fast_device, got, want, 0.0, slope=32 * unit).rho_index == at


BRIEF = ("float16", "bfloat16")
"""Formats whose tiles get a glance first."""
WARPS = tuning()["RESIDENT"] * tuning()["BLOCK"] // 32
"""Of the kernel of peers in the emulator; each must look at its first tile."""


@pytest.mark.parametrize(
    ("want", "steps", "index"),
    [
        (12, 1, "max_abs_index"),
        (1, 2, "max_rel_index"),
        (1.25, 2, "rho_index"),
        (1.5, 5, "max_ulp_index"),
        (1.5, 9, "max_ulp_index"),
        (1.5, 40, "first_bad"),
        (1.5, math.inf, "first_bad"),
        (1.5, math.nan, "first_bad"),
    ],
)
@pytest.mark.parametrize("name", BRIEF)
def test_a_glance_lets_no_record_pass(name, want, steps, index, fast_device):
    """All other pairs are one step apart, so that no later tile has more than the first."""
    fmt, at = FORMATS[name], 50 * TILE + 77
    got, wants = few_steps(name, 60 * TILE, 1, 1)
    notes, left, _ = noted(fast_device, got, wants, **generous(name))
    assert left == 0
    assert notes["unclear"] <= WARPS
    got[at : at + 1], wants[at : at + 1] = few_steps(name, 1, want, steps if math.isfinite(steps) else 0)
    if not math.isfinite(steps):
        got[at] = fmt.dtype.type(steps)
    found = getattr(check(fast_device, got, wants, **generous(name)), index)
    assert found == ((at,) if index == "first_bad" else at)


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("name", BRIEF)
def test_a_glance_sees_what_is_not_finite_in_both(name, value, fast_device):
    got, want = few_steps(name, 60 * TILE, 1, 1)
    got[50 * TILE : 51 * TILE] = want[0]
    got[50 * TILE + 77] = want[50 * TILE + 77] = value
    notes, left, _ = noted(fast_device, got, want, **generous(name))
    assert left == notes["unusual"] == 1


@pytest.mark.parametrize("place", [0, 77, 21 * TILE - 1, 21 * TILE + 5, 41 * TILE + 3])
@pytest.mark.parametrize("name", BRIEF)
def test_a_glance_hides_no_earlier_tie(name, place, fast_device):
    """Many tiles have the largest of all, some of which are looked at after a later one."""
    got, want = few_steps(name, 60 * TILE, 1.5, 1)
    for at in (*range(place, 56 * TILE, 3 * TILE), 50 * TILE):
        got[at : at + 1], want[at : at + 1] = few_steps(name, 1, 1, 3)
    for order in emulator.ORDERS:
        device = Emulated(Mode.FAST)
        device.order = order
        for error, slope in ((0.25, 0.0), (0.0, 0.25), (0.125, 0.125)):
            host = check(device, got, want, error, slope=slope)
            assert host.max_rel_index == host.max_ulp_index == place
            assert slope == 0 or host.rho_index == place


@pytest.mark.parametrize("budget", [(1e-3, 2.0**-7), (2.0**-9, 0.0), (2.0**-22, 2.0**-7)])
@pytest.mark.parametrize(("got_at", "want_at", "is_record"), [(51, 50, True), (0, 30, True), (301, 300, False)])
def test_a_glance_at_subnormal_numbers(budget, got_at, want_at, is_record, fast_device):
    """Each later tile has one whose relative error is below that of another one among those walked first."""
    eta, at = FORMATS["float16"].eta, 50 * TILE + 77
    got, want = few_steps("float16", 60 * TILE, 1, 1)
    for tile in range(58):
        got[tile * TILE + 5], want[tile * TILE + 5] = 301 * eta, 300 * eta
    got[-1], want[-1] = 101 * eta, 100 * eta
    assert noted(fast_device, got, want, *budget)[1] == 0
    got[at], want[at] = got_at * eta, want_at * eta
    host = check(fast_device, got, want, budget[0], slope=budget[1])
    assert (host.max_rel_index == at) == is_record


def below_normal(name, tiles, pairs, steps=1):
    """The same number so many steps apart, but for some pairs, by place: multiples of the least number there is."""
    fmt = FORMATS[name]
    got, want = few_steps(name, tiles * TILE, 1, steps)
    for at, pair in pairs.items():
        for row, multiple in zip((got, want), pair, strict=True):
            row.view(fmt.carrier)[at] = multiple
    return got, want


@pytest.mark.parametrize("budget", [(1e-3, 2.0**-7), (2.0**-8, 0.0), (2.0**-22, 2.0**-7)])
def test_what_equals_a_record_below_the_normal_numbers_is_not_looked_at(budget, fast_device):
    pairs = {tile * TILE + 5: (446, 443) for tile in range(400)} | {tile * TILE + 99: (888, 886) for tile in range(400)}
    notes, left, _ = noted(fast_device, *below_normal("float16", 400, pairs, steps=3), *budget)
    assert left == 0
    assert max(notes["unclear"], notes["ratio"], notes["rho"]) <= WARPS


@pytest.mark.parametrize("budget", [(1e-3, 2.0**-7), (2.0**-9, 0.0), (2.0**-22, 2.0**-7), (2.0**-22, 2.0**-5)])
@pytest.mark.parametrize(
    "pair", [(445, 442), (447, 443), (443, 447), (3, 1), (1, 2), (0, 5), (5, 0), (1029, 1023), (4, 2)]
)
def test_what_is_a_little_more_below_the_normal_numbers_is_found(pair, budget, fast_device):
    pairs = {tile * TILE + 5: (446, 443) for tile in range(60)} | {50 * TILE + 77: pair}
    check(fast_device, *below_normal("float16", 60, pairs), budget[0], slope=budget[1])


@pytest.mark.parametrize(
    ("met", "pair", "index"),
    [
        ({1: 2}, (5, 1), "max_abs_index"),
        ({1: 2, 4: 2}, ("below 2", 2), "max_ulp_real"),  # 3 ulps
        ({1: 2, 4: 2}, (1.75, 3), "max_ulp_index"),
    ],
)
@pytest.mark.parametrize("name", BRIEF)
def test_what_walk_met_is_taken_for_no_more_than_it_is(name, met, pair, index, fast_device):
    unit, at = FORMATS[name].unit, 120 * TILE + 77
    got, want = few_steps(name, 200 * TILE, 1, 1)
    for k, (number, steps) in enumerate(met.items()):
        got[k : k + 1], want[k : k + 1] = few_steps(name, 1, number, steps)
    got[at : at + 1], want[at : at + 1] = few_steps(name, 1, 2 - 2 * unit if pair[0] == "below 2" else pair[0], pair[1])
    for error, slope in ((0.0, 0.25), (0.25, 0.0)):
        found = getattr(check(fast_device, got, want, error, slope=slope), index)
        assert found == (3 if index == "max_ulp_real" else at)


@pytest.mark.parametrize(
    ("want", "steps"), [(1.5, 2), (3, 1), (1.9990234375, 1), (1.25, 7), (1.5, 8), (1.5, 33), (7, 3)]
)
@pytest.mark.parametrize("name", BRIEF)
def test_records_in_later_turns_of_a_warp_that_knows_what_walk_met(name, want, steps, fast_device):
    """The first pairs are two steps apart; of others that differ more or less there are a few, far behind."""
    got, wants = few_steps(name, 200 * TILE, 1, 1)
    got[:300], wants[:300] = few_steps(name, 300, 1.5, 2)
    for tile in (60, 61, 120, 199):
        at = tile * TILE + 7 * tile
        got[at : at + 1], wants[at : at + 1] = few_steps(name, 1, want, steps)
    for error, slope in ((0.25, 0.0), (0.0, 0.25), (0.125, 0.125)):
        check(fast_device, got, wants, error, slope=slope)


@pytest.mark.parametrize("shifts", [(0, 16), (4, 4), (4, 8), (12, 12), (8, 24)])
@pytest.mark.parametrize("name", FAST)
def test_unaligned_starts(name, shifts, device):
    got, want = peers(name, 20 * TILE + 5)
    got[3] = got[19 * TILE] = 100
    assert check(device, got, want, **generous(name), shifts=shifts).bad == 2


SPECIALS = (math.nan, math.inf, -math.inf, 0.0, -0.0, "max", "-max", "tiny", "eta", "-eta", 1.0, -1.0)


def special(name, value):
    fmt = FORMATS[name]
    named = {"max": fmt.max, "-max": -fmt.max, "tiny": fmt.tiny, "eta": fmt.eta, "-eta": -fmt.eta}
    return fmt.dtype.type(named.get(value, value))


@pytest.mark.parametrize("name", FAST)
def test_special_values_of_peers(name, device):
    got, want = peers(name, 24 * TILE)
    for k, one in enumerate(SPECIALS):
        for j, other in enumerate(SPECIALS):
            at = TILE * (k % 20) + 37 * j + k
            got[at], want[at] = special(name, one), special(name, other)
    host = check(device, got, want, **generous(name))
    assert host.class_bad > 20
    assert host.over > 10
    assert host.first_bad[0] < host.first_bad[-1]


@pytest.mark.parametrize("place", [0, 1, 77, TILE - 1, TILE, 9 * TILE + 300, 20 * TILE - 1, 20 * TILE, 21 * TILE + 4])
@pytest.mark.parametrize("name", FAST)
def test_one_wrong_element_is_found_anywhere(name, place, fast_device):
    got, want = peers(name, 21 * TILE + 5)
    got[place] = 37
    host = check(fast_device, got, want, **generous(name))
    assert host.first_bad == (place,)
    assert host.worst_index == place


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("order", emulator.ORDERS[1:])
def test_no_order_of_threads_changes_a_number(name, order, simt_cache):
    device = Emulated(Mode.FAST)
    device.order = order
    got, want = peers(name, 20 * TILE)
    got[5 * TILE + 1], want[7 * TILE] = math.nan, 17.0
    check(device, got, want, **generous(name))


KINDS_OF_DATA = (
    "equal",
    "zeros",
    "constant",
    "uniform",
    "log_uniform",
    "huge",
    "tiny",
    "loose",
    "opposite",
    "small",
    "rising",
    "falling",
)


def data(kind, name, size):
    fmt, rng = FORMATS[name], np.random.default_rng(7)
    x = rng.standard_normal(size)
    scale = {"huge": fmt.max / 64, "tiny": 8 * fmt.tiny}.get(kind, 1.0)
    want = (x * scale).astype(fmt.dtype)
    if kind == "equal":
        return want.copy(), want
    if kind == "zeros":
        want[rng.random(size) < 0.9] = 0
        return want * fmt.dtype.type(1), np.where(rng.random(size) < 0.1, -want, want).astype(fmt.dtype)
    if kind == "constant":
        want = np.full(size, 3.0, fmt.dtype)
    if kind == "uniform":
        want = (1 + rng.random(size)).astype(fmt.dtype)
    if kind == "log_uniform":
        want = (x * 2.0 ** rng.integers(fmt.emin // 2, fmt.emax // 2, size)).astype(fmt.dtype)
    if kind == "loose":
        return (want.astype(np.float64) * (1 + 0.01 * rng.standard_normal(size)) + 0.01).astype(fmt.dtype), want
    if kind == "opposite":
        return (want.astype(np.float64) + 0.6 * rng.standard_normal(size)).astype(fmt.dtype), want
    if kind == "small":
        want = rng.integers(-4, 5, size).astype(fmt.dtype)
        return want + (rng.random(size) < 0.01).astype(fmt.dtype), want
    most = {"rising": 2 + np.arange(size) // TILE, "falling": 2 + np.arange(size)[::-1] // TILE}.get(kind, 2)
    bits = want.view(fmt.carrier).astype(np.int64) + rng.integers(-most, most + 1, size)
    return np.abs(bits).astype(fmt.carrier).view(fmt.dtype), want


BUDGETS = ((1e-3, 0.0), (0.0, 2.0**-6), (1e-3, 2.0**-7), (0.0, 0.0), (4.0, 1.0), (1e-300, 2.0**-7))


@pytest.mark.parametrize("kind", KINDS_OF_DATA)
@pytest.mark.parametrize("name", FAST)
def test_all_kinds_of_data_and_budgets(name, kind, fast_device):
    got, want = data(kind, name, (50 if kind in {"rising", "falling"} else 21) * TILE + 9)
    for error, slope in BUDGETS:
        check(fast_device, got, want, error, slope=slope)


def test_values_that_vanish_or_overflow_in_float32_sums(fast_device):
    rng = np.random.default_rng(3)
    for low, high in ((-149, -120), (-149, 0), (-80, -60), (50, 70), (100, 127), (-149, 127)):
        want = np.clip(rng.standard_normal(20 * TILE), -1, 1) * 2.0 ** rng.integers(low, high, 20 * TILE)
        want = want.astype(np.float32)
        got = want.copy()
        got[::3] = np.nextafter(got[::3], np.float32(np.inf))
        check(fast_device, got, want, 0.0, slope=0.5)
        one = want.copy()
        one[7 * TILE] = np.nextafter(one[7 * TILE], np.float32(0))
        check(fast_device, one, want, 2.0**-99, slope=2.0**-20)


def test_a_pair_on_both_sides_of_a_power_of_two_may_have_the_largest_rho(fast_device):
    """Its excess is a larger part of its error than that of any pair with as many steps in one binade."""
    want = np.full(24 * TILE, 1.5, np.float32)
    got = want.copy()
    want[-1], got[-1] = 0.3125, 0.3125 + 10 * 2.0**-25  # 2.375 ulps of 1, in what is walked first
    want[5000], got[5000] = 2 + 2.0**-22, 2 - 2.0**-23  # 3 of them, half a step less
    assert check(fast_device, got, want, 1e-3, slope=0.0).rho_index == 5000


def test_errors_over_several_binades(fast_device):
    want = np.ones(24 * TILE, np.float32)
    got = want.copy()
    got[:: TILE // 2], got[40 * TILE // 2] = 7.5, 8  # 6.5 and 7 times 2**23 ulps, but fewer steps in the mean
    assert check(fast_device, got, want, 0.0, slope=100.0).max_ulp_real == 7 * 2.0**23


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_zero_may_have_the_largest_rho(name, zero, fast_device):
    want = np.ones(24 * TILE, FORMATS[name].dtype)
    got = want.copy()
    want[5000], got[5000] = 2.0**-10, zero
    assert check(fast_device, got, want, 0.125, slope=0.0).rho_index == 5000


@pytest.mark.parametrize("name", FAST)
def test_a_lane_that_has_looked_looks_again_at_what_is_a_little_larger(name, fast_device):
    want = np.ones(50 * TILE, FORMATS[name].dtype)
    got = want.copy()
    got[7::TILE] = 1 + 20 * FORMATS[name].unit
    got[40 * TILE + 7], got[48 * TILE :] = 1 + 24 * FORMATS[name].unit, 1
    assert check(fast_device, got, want, 0.0, slope=0.5).max_rel_index == 40 * TILE + 7


def test_a_tie_goes_to_the_first(fast_device):
    """Equal largest values in several tiles: the fast kernel knows tiles only, and they are not met in order."""
    for name in FAST:
        want = np.ones(30 * TILE, FORMATS[name].dtype)
        got = want.copy()
        got[[29 * TILE + 3, 17 * TILE + 9, 3 * TILE + 8, 11 * TILE]] = 1 + 4 * FORMATS[name].unit
        host = check(fast_device, got, want, 0.0, slope=1.0)
        assert host.max_rel_index == host.max_abs_index == host.rho_index == host.max_ulp_index == 3 * TILE + 8


def references(name, size, seed=2):
    fmt, rng = FORMATS[name], np.random.default_rng(seed)
    if not fmt.is_float:
        info = np.iinfo(fmt.dtype)
        want = rng.integers(max(info.min, -(2**52)), min(info.max, 2**52), size)
        got = np.clip(want + (rng.random(size) < 0.05), info.min, info.max).astype(fmt.dtype)
        return got, want.astype(np.float64)
    want = rng.standard_normal(size) * min(1.0, fmt.max / 64)
    return (want * (1 + fmt.unit * rng.standard_normal(size))).astype(fmt.dtype), want


@pytest.mark.parametrize("size", [1, 513, 4 * TILE + 1])
@pytest.mark.parametrize("name", FORMATS)
def test_references_of_all_formats(name, size, device):
    got, want = references(name, size)
    unit = FORMATS[name].unit if FORMATS[name].is_float else 0.4
    rng = np.random.default_rng(1)
    check(device, got, want, unit)
    check(device, got, want, unit * np.abs(want) * rng.random(size))
    if name != "float64":
        check(device, got, want.astype(np.float32), unit)


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.is_float])
def test_special_values_masks_and_sigma_of_references(name, fast_device):
    got, want = references(name, 4 * 144 + 1)
    rng = np.random.default_rng(9)
    for k, one in enumerate(SPECIALS):
        for j, other in enumerate(SPECIALS):
            got[4 * (12 * k + j)] = special(name, one)
            want[4 * (12 * k + j)] = {"eta": FORMATS[name].eta / 3, "max": 1.5 * FORMATS[name].max}.get(other, 0.0)
            if not isinstance(other, str):
                want[4 * (12 * k + j)] = other
    masks = rng.choice([INTERVAL, INTERVAL | NAN, ZERO | INTERVAL, PINF | NINF, NAN], got.size).astype(np.uint8)
    for accept in (None, INTERVAL | NAN, masks):
        for sigma in (None, FORMATS[name].unit, np.full(got.size, FORMATS[name].unit) * rng.random(got.size)):
            host = check(fast_device, got, want, 4 * FORMATS[name].unit, accept=accept, sigma=sigma)
            assert host.bad > 0
    check(fast_device, got, want, rng.choice([0.0, -1.0, np.nan, np.inf, 1e-3], got.size))


@pytest.mark.parametrize("name", ["float64", "int8", "uint8", "int32", "int64", "float8_e5m2"])
def test_peers_without_a_fast_kernel(name, fast_device):
    got, want = references(name, 3 * TILE + 2)
    want = want.astype(FORMATS[name].dtype)
    check(fast_device, got, want, FORMATS[name].unit, slope=FORMATS[name].unit)


def test_large_int64_peers_are_told_apart(fast_device):
    """Where float64 cannot: the host would take the peer for the nearest float64."""
    want = np.array([2**60, 2**61 + 1, -(2**62)])
    found = answer(fast_device, want + np.array([0, 1, 0]), want, 0.0, slope=0.0).measured
    assert found.first_bad == (1,)


@pytest.mark.parametrize("shape", [(70, 130), (3, 5, 7), (1, 4096), (4000, 1), (5,), (32, 64)])
def test_cells(shape, device):
    rng = np.random.default_rng(4)
    want = rng.standard_normal(shape).astype(np.float32)
    got = np.where(rng.random(shape) < 0.03, 9, want).astype(np.float32)
    got.reshape(-1)[-1] = np.nan
    with Held(device) as held:
        found = compare(device, Question(held.tensor(got), held.tensor(want), 1e-6, 0.0))
    np.testing.assert_array_equal(found.cells, failing_cells(got, want, 1e-6, 0.0))
    agree(found.measured, on_host(got, want, 1e-6, 0.0))


def test_a_clean_output_has_no_cells(fast_device):
    got, want = peers("float32", 20 * TILE)
    assert answer(fast_device, got, want, **generous("float32")).cells is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"want": np.ones(3, np.float32)}, "got has shape (4,), want (3,); they must be equal"),
        ({"want": np.ones(4)}, "want has dtype float64; it must be float32, as of any peer"),
        ({"slope": None, "want": np.ones(4, np.float16)}, "it must be float64 or float32, as of any reference"),
        ({"error": np.ones(4)}, "a tensor of errors does not go with a slope; give both as numbers"),
        ({"accept": np.ones(3, np.uint8)}, "accept has 3 of uint8; it must have 4 of uint8"),
        ({"sigma": np.ones(4, np.float32)}, "sigma has 4 of float32; it must have 4 of float64"),
        ({"got": np.ones(4, np.uint16)}, "dtype 'uint16' is not known"),
    ],
)
def test_what_does_not_go_together(change, message, fast_device):
    ones = np.ones(4, np.float32)
    with pytest.raises(UsageError) as caught:
        answer(fast_device, **{"got": ones, "want": ones, "error": 1.0, "slope": 0.0} | change)
    assert message in str(caught.value)


def test_the_kernel_file_has_the_tallys_constants():
    text = SOURCE.read_text()
    assert "enum { SMALL, SINGLE, DOUBLE, INTEGER };" in text
    assert (measure_numpy.SMALL, measure_numpy.SINGLE, measure_numpy.DOUBLE, measure_numpy.INTEGER) == (0, 1, 2, 3)
    assert f"INTERVAL = {INTERVAL}, ZERO = {ZERO}, PINF = {PINF}, NINF = {NINF}, NAN_ = {NAN}" in text
    assert f"BUCKETS = {measure_numpy.BUCKETS}" in text
    facts = measure_numpy.facts_of("float32")
    assert list(facts[:8]) == [measure_numpy.SINGLE, 23, 2.0**-24, 2.0**-126, 2.0**127, *facts[5:7], 1]
    top, overflow = (float.fromhex(f"0x1.{digits}p127") for digits in ("fffffefffffff", "ffffff"))
    assert (facts[measure_numpy.TOP], facts[measure_numpy.OVERFLOW]) == (top, overflow)
    assert (module.LINES, module.COLUMNS) == (LINES, COLUMNS)
