"""The bench without a device: suites, drawn shapes, statistics, floor, rounds, checks, report, words."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tilegen import bench, cli
from tilegen.backend import Ceiling, Timing
from tilegen.bench.buffers import (
    ALIGNMENT,
    MOST_SETS,
    BufferSets,
    OperandSet,
    aligned,
    fill,
    make_sets,
    random_values,
    set_count,
)
from tilegen.bench.cases import DRAWN_EXTENT, with_spec
from tilegen.bench.check import check_against, check_sample
from tilegen.bench.floor import Floor, floor, traffic
from tilegen.bench.host import HostWorkbench
from tilegen.bench.measure import LEAST_ROUNDS, MOST_CALLS, Runner, measure
from tilegen.bench.numpy_peer import NumpyPeer, pins
from tilegen.bench.report import BenchReport, CaseResult, Measurement
from tilegen.bench.statistics import geometric_mean, quantile, summary
from tilegen.bench.table import text
from tilegen.dtypes import DTYPES
from tilegen.errors import SpecError, VerifyError
from tilegen.spec import Layouts, Types

ROOT = Path(__file__).parents[2]
F32 = str(ROOT / "examples" / "gemm_f32.toml")


# ---- cases ---------------------------------------------------------------------------------------


def test_suites_hold_what_the_road_map_lists():
    assert set(bench.SUITES) == {"square", "llm", "odd", "majornesses", "types", "all"}
    assert [c.m for c in bench.suite("square")] == [512, 1024, 2048, 4096, 8192]
    llm = {(c.m, c.n, c.k) for c in bench.suite("llm")}
    assert len(llm) == 18
    assert {(1, 6144, 4096), (64, 4096, 14336), (4096, 28672, 4096)} <= llm
    assert {c.kind for c in bench.suite("llm") if c.m <= 64} == {"decode"}
    assert {c.kind for c in bench.suite("llm") if c.m > 64} == {"prefill"}
    assert (4095, 4097, 4091) in {(c.m, c.n, c.k) for c in bench.suite("odd")}
    assert {c.letters for c in bench.suite("majornesses")} == {"NN", "NT", "TN", "TT"}
    assert {c.types.a for c in bench.suite("types")} == {"f32", "f64", "f16", "bf16", "s8"}


@pytest.mark.parametrize("name", bench.SUITES)
def test_cases_of_a_suite_have_names_of_their_own(name):
    names = [case.name for case in bench.suite(name)]
    assert len(set(names)) == len(names)


def test_letters_tell_the_majorness_of_a_first():
    case = bench.Case(1, 2, 3, layout=Layouts(a="col", b="row"))
    assert case.name == "f32 TN 1x2x3"


def test_types_sum_in_what_holds_them():
    assert bench.element_types("s8").acc == "s32"
    assert bench.element_types("bf16") == Types(a="bf16", b="bf16", acc="f32", c="bf16", d="bf16")
    assert bench.element_types("f64").acc == "f64"


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_same_seed_draws_the_same_shapes(kind):
    shapes = bench.drawn(20, 7, kind)
    assert shapes == bench.drawn(20, 7, kind)
    assert shapes != bench.drawn(20, 8, kind)
    assert bench.drawn(5, 7, kind) == shapes[:5]
    extents = [x for c in shapes for x in (c.m, c.n, c.k)]
    assert min(extents) >= 16
    assert max(extents) <= DRAWN_EXTENT[kind]
    assert {c.kind for c in shapes} == {"drawn"}


def test_drawn_shapes_are_tidy_and_untidy_and_of_every_size():
    shapes = bench.drawn(400, 0, "gpu")
    tidy = [c for c in shapes if c.m % 16 == c.n % 16 == c.k % 16 == 0]
    assert 120 < len(tidy) < 280
    assert sum(c.m < 256 for c in shapes) > 100
    assert sum(c.m > 1024 for c in shapes) > 80


def test_shapes_typed_by_hand():
    assert [(c.m, c.n, c.k) for c in bench.parse_shapes("512, 3X4x5")] == [(512,) * 3, (3, 4, 5)]


@pytest.mark.parametrize(
    "words", ["", "512x512", "-1", "a", "1x2x", "0", "1x2x3x4", "2147483648", "²"]
)
def test_shapes_that_are_none(words):
    with pytest.raises(SpecError, match="shape"):
        bench.parse_shapes(words)


def test_a_suite_that_is_none_names_the_nearest():
    with pytest.raises(SpecError, match="did you mean 'square'"):
        bench.suite("sqare")


def test_a_spec_gives_types_and_layout_and_keeps_what_the_suite_varies():
    types, layout = bench.element_types("f64"), Layouts(a="col", b="row", c="col", d="col")
    [one] = with_spec(bench.parse_shapes("64"), types, layout)
    assert (one.types, one.layout) == (types, layout)
    varied = with_spec(bench.suite("majornesses"), types, layout)
    assert {c.letters for c in varied} == {"NN", "NT", "TN", "TT"}
    assert {c.layout.d for c in varied} == {"col"}


# ---- statistics and floor ------------------------------------------------------------------------


def test_summaries_agree_with_numpy():
    rng = np.random.default_rng(0)
    samples = list(rng.exponential(size=31))
    found = summary(samples)
    want = np.quantile(samples, [0.5, 0.1, 0.9])
    assert np.allclose([found.median, found.p10, found.p90], want)
    assert found.count == 31
    assert math.isclose(found.spread, (want[2] - want[1]) / want[0])
    assert quantile([4.0], 0.9) == 4.0


def test_geometric_mean():
    assert math.isclose(geometric_mean([0.5, 2.0]), 1.0)
    for none in ([], [1.0, 0.0], [-1.0]):
        with pytest.raises(ValueError, match="positive"):
            geometric_mean(none)
    with pytest.raises(ValueError, match="no samples"):
        summary([])


def test_the_floor_is_the_larger_of_two_times():
    peak, memory = Ceiling(1e12, "fma"), Ceiling(1e11, "triad")
    square = bench.Case(1024, 1024, 1024)
    assert floor(square, peak, memory) == Floor(2 * 1024**3 / 1e12, "FLOP")
    vector = bench.Case(1, 4096, 4096)
    assert traffic(vector) == 4 * (4096 + 4096 * 4096 + 4096)
    assert floor(vector, peak, memory) == Floor(traffic(vector) / 1e11, "bytes")
    assert floor(square, None, memory) is None
    assert floor(square, peak, None) is None


def test_traffic_counts_each_type():
    case = bench.Case(2, 3, 5, types=bench.element_types("s8"))
    assert traffic(case) == 2 * 5 + 5 * 3 + 2 * 3 * 4


# ---- buffers -------------------------------------------------------------------------------------


def test_sets_outgrow_the_cache():
    case, cache = bench.Case(64, 64, 64), 10 * 3 * 64 * 64 * 4
    count = set_count(case, cache, 1 << 40)
    assert (count - 1) * traffic(case) >= cache
    assert (count - 3) * traffic(case) < cache
    assert set_count(case, cache, 1 << 40, warm=True) == 1
    assert set_count(case, 1 << 60, 1 << 62) == MOST_SETS
    assert set_count(case, cache, 3 * traffic(case)) == 3
    assert set_count(bench.Case(8192, 8192, 8192), cache, 1 << 40) >= 2


class Bench(HostWorkbench):
    """A workbench of a small cache."""

    def __init__(self, cache: int = 1 << 16, memory: int = 1 << 30) -> None:
        super().__init__()
        self.cache_bytes, self.memory_bytes = cache, memory


def test_sets_are_random_and_differ_and_repeat():
    case = bench.Case(32, 48, 64, layout=Layouts(a="col", b="row"))
    sets = make_sets(case, Bench(), seed=1)
    assert sets.cold
    assert len(sets.sets) > 2
    one, two = sets.sets[:2]
    assert one.a.shape == (32, 64)
    assert one.a.flags.f_contiguous
    assert one.b.flags.c_contiguous
    assert one.d.shape == (32, 48)
    assert not np.array_equal(one.a, two.a)
    assert abs(float(one.b.mean())) < 0.1
    assert abs(float(one.b.std()) - 1) < 0.1
    again = make_sets(case, Bench(), seed=1).sets[0]
    assert np.array_equal(one.a, again.a)
    assert not np.array_equal(one.a, make_sets(case, Bench(), seed=2).sets[0].a)
    assert not make_sets(case, Bench(), seed=1, warm=True).cold


def test_sets_that_have_no_room():
    with pytest.raises(MemoryError):
        make_sets(bench.Case(64, 64, 64), Bench(memory=1000), seed=0)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16", "s8", "u8"])
@pytest.mark.parametrize("majorness", ["row", "col"])
def test_arrays_are_aligned_and_filled_to_the_end(name, majorness):
    kind = DTYPES[name]
    array = aligned((7, 13), kind, majorness)
    assert array.__array_interface__["data"][0] % ALIGNMENT == 0
    assert array.dtype == kind.numpy
    pool = random_values(np.random.default_rng(0), kind, 17)
    fill(array, pool, 11)
    flat = array.reshape(-1, order="A").astype(np.float64)
    assert np.array_equal(
        flat, np.resize(np.roll(pool, -11), 6).tolist() + list(np.resize(pool, 85))
    )


# ---- rounds --------------------------------------------------------------------------------------


class Clock(HostWorkbench):
    """A workbench whose calls take what they say."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[int, int]] = []

    def time(self, calls, lead=0):
        self.seen.append((len(calls), lead))
        taken = sum([float(call()) for call in calls][lead:])
        return Timing(taken, taken / 10, starved=len(calls) > 100)


def sets_of(count: int) -> BufferSets:
    return BufferSets(tuple(OperandSet(i, i, i) for i in range(count)), True)


def test_rounds_interleave_everyone_and_drop_the_first():
    order: list[str] = []

    def runner(name: str, seconds: float) -> Runner:
        def prepare(_: OperandSet):
            def call() -> float:
                order.append(name)
                return seconds

            return call

        return Runner(name, prepare)

    fast, slow = runner("fast", 3e-3), runner("slow", 30e-3)
    rounds = measure([fast, slow], sets_of(3), Clock(), budget=0.3, rng=random.Random(0))
    assert rounds.count == len(fast.seconds) == len(slow.seconds) >= LEAST_ROUNDS
    assert rounds.calls == {"fast": 1, "slow": 1}
    assert all(math.isclose(x, 3e-3) for x in fast.seconds)
    assert all(math.isclose(x, 3e-4) for x in fast.host_seconds)
    # Between two turns of one the other has had its own, in an order that changes.
    names = [name for i, name in enumerate(order) if i == 0 or order[i - 1] != name]
    assert order.count("slow") == rounds.count + 3  # a lead and the first look, and the warm-up
    assert len(names) > rounds.count
    assert fast.event_seconds == []


def test_short_calls_are_batched_and_take_sets_in_turn():
    used: list[int] = []

    def prepare(one: OperandSet):
        return lambda: used.append(one.a) or 1e-5

    bench_ = Clock()
    runner = Runner("x", prepare)
    rounds = measure([runner], sets_of(7), bench_, budget=0.05, rng=random.Random(0))
    assert runner.starved == rounds.count
    assert rounds.calls == {"x": 200}
    assert MOST_CALLS == 200
    assert {x for x, _ in bench_.seen[1:]} == {201}
    assert all((b - a) % 7 == 1 for a, b in pairwise(used))


# ---- checks --------------------------------------------------------------------------------------


def product(name: str = "f32"):
    case = bench.Case(40, 30, 50, types=bench.element_types(name))
    one = make_sets(case, Bench(), seed=3).sets[0]
    wide = one.a.astype(np.float64) @ one.b.astype(np.float64)
    return case, one.a, one.b, wide.astype(DTYPES[case.types.d].numpy)


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "s8"])
def test_right_products_pass(name):
    case, a, b, d = product(name)
    check_sample(case, a, b, d, "fma", "kernel", 0)
    check_against(case, a, b, d, d, "fma", "peer", case.types.acc)


@pytest.mark.parametrize("wrong", [1e-3, math.nan])
def test_wrong_products_do_not(wrong):
    case, a, b, d = product()
    bad = d + np.float32(wrong)
    with pytest.raises(VerifyError, match="kernel: D"):
        check_sample(case, a, b, bad, "fma", "kernel", 0)
    one = d.copy()
    one[39, 29] += np.float32(wrong)
    with pytest.raises(VerifyError, match=r"peer: D\[39, 29\]") as caught:
        check_against(case, a, b, d, one, "fma", "peer", "f32")
    assert (caught.value.row, caught.value.col) == (39, 29)


def test_integers_must_be_exact():
    case, a, b, d = product("s8")
    with pytest.raises(VerifyError):
        check_sample(case, a, b, d + 1, "fma", "kernel", 0)


def test_a_narrower_accumulator_of_a_peer_is_allowed_for():
    case, a, b, d = product("f16")
    half = np.zeros(d.shape, np.float16)
    for k in range(case.k):
        half += np.outer(a[:, k], b[k])
    check_against(case, a, b, d, half, "fma", "peer", "f16")


# ---- report --------------------------------------------------------------------------------------


def result(m: int, ours: float, theirs: float | None, kind: str = "big") -> CaseResult:
    peers = () if theirs is None else (Measurement("BLAS", (theirs, theirs, theirs)),)
    variants = (
        Measurement(
            "x", (ours, 2 * ours, ours), (ours / 2,) * 3, (1e-6,) * 3, 2e-6, {"name": "k"}, 1
        ),
        Measurement("y", (2 * ours,) * 3),
    )
    least = Floor(ours / 4, "FLOP")
    return CaseResult(bench.Case(m, m, m), kind, least, 3, True, 3, variants, peers, {"z": "no"})


def report(*results: CaseResult) -> BenchReport:
    return BenchReport(
        "opencl", "cpu", "a processor", "wall",
        {"f32": {"rate": 1e11, "how": "fma"}, "bytes": {"rate": 1e10, "how": "triad"}},
        {"BLAS": {"version": "1"}, "Other": "Other is not here"}, results, 5, "cold",
        {"tilegen": "0"}, ("a note",), 1.0,
    )  # fmt: skip


def test_ratios():
    one = result(64, 2.0, 1.0)
    x, y = one.variants
    assert one.best is x
    assert one.peer_ratio(x) == 0.5
    assert one.floor_share(x) == 0.25
    assert one.rate(x) == 2 * 64**3 / 2
    assert one.paired(x, one.peers[0]).p10 < 0.5
    assert one.peer_ratio(y) == 0.25


def test_classes_have_mean_and_worst():
    found = report(result(64, 1.0, 2.0), result(65, 1.0, 0.5), result(66, 1.0, 3.0, "odd"))
    rows = {(c.kind, c.variant, c.against): c for c in found.classes()}
    big = rows["big", "x", "peer"]
    assert (big.count, big.worst, big.worst_case) == (2, 0.5, "f32 NN 65x65x65")
    assert math.isclose(big.mean, 1.0)
    assert rows["all", "best", "peer"].count == 3
    assert rows["odd", "y", "floor"].worst == 0.125
    worst = found.worst()
    assert worst is not None
    assert worst.case.m == 65


def test_without_peers_the_worst_is_against_the_floor():
    worst = report(result(64, 1.0, None), result(65, 1.0, None)).worst()
    assert worst is not None
    assert report().worst() is None
    assert {c.against for c in report(result(64, 1.0, None)).classes()} == {"floor"}


def test_json_of_schema_1_holds_every_sample():
    data = json.loads(json.dumps(report(result(64, 1.0, 2.0)).to_dict(), allow_nan=False))
    assert data["schema"] == 1
    assert data["seed"] == 5
    assert data["peers"]["Other"] == "Other is not here"
    [case] = data["cases"]
    assert case["class"] == "big"
    assert case["refused"] == {"z": "no"}
    x = case["variants"][0]
    assert x["seconds"] == [1.0, 2.0, 1.0]
    assert x["median"] == 1.0
    assert x["p90"] > x["median"]
    assert x["ratios"]["BLAS"]["median"] == 2.0
    assert x["kernel"] == {"name": "k"}
    assert "ratios" not in case["peers"][0]
    assert data["worst"] == "f32 NN 64x64x64"


def test_the_report_says_itself_without_rich():
    lines = str(report(result(64, 1.0, 2.0), result(65, 1.0, None))).splitlines()
    assert lines[0] == "a processor, opencl cpu, cold, seed 5"
    assert any(
        line.startswith("f32 NN 64x64x64 x: 0.0 GFLOP/s, 1000000.0 us (1000000.0 to 1800000.0), "
                        "2.00 of the fastest peer, 0.25 of the floor's speed") for line in lines
    )  # fmt: skip
    assert not any("peer" in line for line in lines if "65x65x65" in line)
    assert lines[-1] == "a note"


def test_the_table_names_what_the_report_holds():
    said = text(report(result(64, 1.0, 2.0), result(65, 1.0, 0.5)))
    for part in (
        "a processor", "seed 5", "Other is not here", "BLAS: version 1", "100.0 GFLOP/s (fma)",
        "f32 NN 64x64x64", "2.00 (", "0.25 FLOP", "geometric mean", "a note",
        "worst    f32 NN 65x65x65 (big): 0.50 of the fastest peer",
        "waited for the host: x on f32 NN 64x64x64 in 1 of 3 rounds",
        "not run  f32 NN 64x64x64, f32 NN 65x65x65: z: no",
    ):  # fmt: skip
        assert part in said, part
    assert "\x1b" not in said
    assert max(map(len, said.splitlines())) <= 150


# ---- peers ---------------------------------------------------------------------------------------


def test_numpy_multiplies_what_its_blas_does(monkeypatch):
    peer = NumpyPeer()
    assert peer.refusal(bench.element_types("f32")) == ""
    assert peer.refusal(bench.element_types("f64")) == ""
    assert "f16" in peer.refusal(bench.element_types("f16"))
    assert "s8" in peer.refusal(bench.element_types("s8"))
    assert "f32" in peer.refusal(Types(a="f32", b="f32", acc="f64", c="f64", d="f64"))
    case, a, b, d = product()
    out = np.zeros_like(d)
    assert peer.prepare(a, b, out, case.types, case.layout)() is None
    assert np.allclose(out, d, atol=1e-4)
    assert peer.description["numpy"] == np.__version__
    assert "blas" in peer.description
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    assert pins() == ["OPENBLAS_CORETYPE"]
    assert peer.description["OPENBLAS_CORETYPE"] == "Haswell"


def test_clblast_that_is_absent_is_one_sentence(monkeypatch):
    from tilegen_opencl.clblast import _library

    library, said = _library("/nowhere/libclblast.so")
    assert library is None
    assert said.startswith("CLBlast cannot be loaded from TILEGEN_CLBLAST: ")
    assert "\n" not in said


# ---- words ---------------------------------------------------------------------------------------


@pytest.fixture
def refused(capsys):
    """Run a command line that must be refused; its sentence."""

    def run(*words: str) -> str:
        assert cli.run(["bench", *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        return err.removeprefix("tilegen: ").strip()

    return run


def test_refusals_are_sentences(refused, tmp_path):
    pytest.importorskip("matplotlib")
    opencl = ("--backend", "opencl")
    assert "neither a suite (square, llm" in refused("sqare", *opencl)
    assert "no such file" in refused("none.toml", *opencl)
    assert "named twice" in refused("square", "--suite", "odd", *opencl)
    assert "give one" in refused("square", "--suite", "square", "--shapes", "5", *opencl)
    assert "sets the types" in refused(F32, "--suite", "types", *opencl)
    assert "did you mean 'llm'" in refused(F32, "--suite", "lm", *opencl)
    assert "no such folder" in refused("square", "--plot", str(tmp_path / "a" / "b.png"), *opencl)
    assert "is .png, .svg or .pdf" in refused("square", "--plot", str(tmp_path), *opencl)
    assert "there is no backend" in refused("square", "--backend", "opncl")
    batched = str(ROOT / "examples" / "gemm_f32_batched_bias_gelu.toml")
    assert "batch = 'strided' and an epilogue" in refused(batched, *opencl)


def test_a_json_file_that_cannot_be_written_is_refused_before_the_run(capsys, tmp_path):
    assert cli.run(["bench", "square", "-b", "opencl", "--json", str(tmp_path)]) == 2
    assert "it is a folder" in json.loads(capsys.readouterr().out)["error"]


def test_a_plot_without_matplotlib_is_one_sentence(refused, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refused("square", "--backend", "opencl", "--plot", "x.png")
    assert said == "the plot needs matplotlib: python -m pip install 'tilegen[plot]'"


def test_the_api_needs_neither_rich_nor_typer():
    code = (
        "import sys; sys.modules['rich'] = sys.modules['typer'] = None\n"
        "import json; from tilegen import bench\n"
        "assert callable(bench.run); print(json.dumps(bench.suite('odd')[0].name))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == "f32 NN 1000x1000x1000"


def test_pins_go_before_numpy_is_loaded():
    code = (
        "import os, sys; from tilegen.cli.benching import _unpin\n"
        "print(_unpin(), 'OPENBLAS_CORETYPE' in os.environ); import numpy\n"
        "os.environ['OPENBLAS_CORETYPE'] = 'x'; print(_unpin())"
    )
    env = {**os.environ, "OPENBLAS_CORETYPE": "Haswell"}
    env.pop("OPENBLAS_L2_SIZE", None)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert done.stdout.splitlines() == ["['OPENBLAS_CORETYPE'] False", "[]"]
