"""A tiny bench from end to end on the CPU runtime: how its numbers relate, never how large they are."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import tilegen as tg
from tilegen import bench, cli, registry
from tilegen.errors import BackendError, VerifyError

EXAMPLES = Path(__file__).parents[2] / "examples"
TILE = tg.TileSpec(block=(64, 64, 64), warp=(64, 64))
needs_cpu = pytest.mark.skipif(
    not any(d.arch.name == "cpu" for d in registry.get("opencl").devices()),
    reason="no OpenCL CPU device: pip install 'tilegen[cpu]'",
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small caches and few rounds: what is tested is the way, not the numbers."""
    from tilegen_opencl import workbench

    monkeypatch.setattr("tilegen.bench.host.host_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(workbench, "host_cache_bytes", lambda: 1 << 20)
    monkeypatch.setattr(workbench, "CEILING_SECONDS", 1e-3)
    monkeypatch.setattr(workbench, "CEILING_BYTES", 1 << 22)
    monkeypatch.setattr("tilegen.bench.measure.MOST_ROUNDS", 5)


@needs_cpu
def test_a_run_on_the_cpu_runtime() -> None:
    cases = (*bench.parse_shapes("64"), bench.Case(70, 33, 65, layout=tg.spec.Layouts(a="col")))
    report = bench.run(cases, [TILE], backend="opencl", arch="cpu", budget=0.01, peers=["numpy"])
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["schema"] == 1
    assert data["clock"] == "wall"
    assert set(data["ceilings"]) == {"f32", "bytes"}
    assert data["ceilings"]["f32"]["rate"] > 0
    assert [case["name"] for case in data["cases"]] == ["f32 NN 64x64x64", "f32 TN 70x33x65"]
    for case in data["cases"]:
        [ours], [peer] = case["variants"], case["peers"]
        assert peer["name"] == "NumPy"
        assert case["cold"]
        assert case["rounds"] == len(ours["seconds"]) == len(peer["seconds"]) == 5
        assert ours["p10"] <= ours["median"] <= ours["p90"]
        assert math.isclose(ours["flop_per_second"], case["flop"] / ours["median"])
        assert math.isclose(ours["share_of_floor"], case["floor"]["seconds"] / ours["median"])
        assert ours["ratios"]["NumPy"]["count"] == 5
        # The kernel alone is a part of the call, and so is queueing it.
        assert len(ours["event_seconds"]) == len(ours["queue_seconds"]) == 5
        parts = zip(ours["event_seconds"], ours["queue_seconds"], ours["seconds"], strict=True)
        assert all(0 < kernel < whole and 0 < queued < whole for kernel, queued, whole in parts)
        assert ours["call_seconds"] > 0
        assert ours["kernel"]["spec_sha256"] != ""
        assert ours["kernel"]["registers"]["vector"]["predicted"] > 0
        assert peer["event_seconds"] == []
        assert ours["kernel"]["entries"] == ["gemm_wide"]


@needs_cpu
def test_a_variant_that_cannot_be_built_is_refused_alone() -> None:
    bad = tg.TileSpec(block=(100, 64, 64), warp=(64, 64))
    report = bench.run(
        bench.parse_shapes("64"), {"good": TILE, "bad": bad}, backend="opencl", arch="cpu",
        budget=0.01, peers=[],
    )  # fmt: skip
    [case] = report.results
    assert [v.name for v in case.variants] == ["good"]
    assert "BLOCK_M must be a multiple" in case.refused["bad"]
    assert case.peers == ()


@needs_cpu
def test_what_takes_too_long_or_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilegen_opencl.workbench import OpenCLWorkbench

    monkeypatch.setattr(OpenCLWorkbench, "memory_bytes", property(lambda _: 64 << 20))
    report = bench.run(
        bench.parse_shapes("64,2048,8192"), TILE, backend="opencl", arch="cpu", budget=0.001,
        peers=[],
    )  # fmt: skip
    small, long, large = report.results
    assert small.variants
    assert not long.variants
    assert "raise the budget" in long.refused["case"]
    assert "64 MiB of" in large.refused["case"]


@needs_cpu
def test_a_wrong_kernel_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilegen_opencl.workbench import OpenCLWorkbench

    monkeypatch.setattr(OpenCLWorkbench, "get", lambda _, array: np.asarray(array) + 1)
    with pytest.raises(VerifyError, match="it is not timed"):
        bench.run(bench.parse_shapes("64"), TILE, backend="opencl", arch="cpu", peers=[])


@needs_cpu
def test_a_wrong_peer_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilegen.bench.numpy_peer._multiply", lambda a, b, out: out.fill(3))
    report = bench.run(
        bench.parse_shapes("64"), TILE, backend="opencl", arch="cpu", budget=0.01, peers=["NumPy"]
    )
    [case] = report.results
    assert case.variants
    assert case.peers == ()
    assert "it is not timed" in case.refused["NumPy"]


@needs_cpu
def test_a_peer_that_is_unknown_or_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = bench.parse_shapes("64")
    with pytest.raises(BackendError, match=r"no peer 'mkl' .* known: NumPy, CLBlast"):
        bench.run(cases, TILE, backend="opencl", arch="cpu", peers=["mkl"])
    monkeypatch.setenv("TILEGEN_CLBLAST", "/nowhere/libclblast.so")
    with pytest.raises(BackendError, match="CLBlast cannot be loaded"):
        bench.run(cases, TILE, backend="opencl", arch="cpu", peers=["clblast"])


@needs_cpu
def test_queued_launches_are_timed_by_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's way of timing, on a CPU's queue: buffers on the device, markers, the plug ahead."""
    from tilegen_opencl import device as module
    from tilegen_opencl import workbench

    def as_gpu(device: module.OpenCLDevice) -> workbench.OpenCLWorkbench:
        made = workbench.OpenCLWorkbench(device)
        made._cpu = False
        return made

    monkeypatch.setattr(workbench, "GPU_CACHE_BYTES", 1 << 20)
    monkeypatch.setattr(workbench, "LONGEST_PLUG", 0.01)
    monkeypatch.setattr(module.OpenCLDevice, "workbench", as_gpu)
    report = bench.run(
        bench.parse_shapes("64"), TILE, backend="opencl", arch="cpu", budget=0.01, peers=[]
    )
    [case] = report.results
    assert report.clock == "device"
    assert min(case.variants[0].seconds) > 0


def test_a_backend_without_a_workbench_is_timed_by_the_wall_clock() -> None:
    device = next(iter(registry.get("plain_c").devices()), None)
    if device is None:
        pytest.skip("no C compiler")
    report = bench.run(
        bench.parse_shapes("32"), tg.TileSpec(block=(16, 16, 16), warp=(16, 16)),
        backend="plain_c", budget=0.01, peers=["numpy"],
    )  # fmt: skip
    [case] = report.results
    assert case.floor is None
    assert report.ceilings == {}
    assert case.variants
    assert case.peers
    assert {c.against for c in report.classes()} == {"peer"}


@needs_cpu
def test_the_command_prints_writes_and_draws(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("matplotlib")
    json_path, plot = tmp_path / "out.json", tmp_path / "out.png"
    status = cli.run(
        ["bench", str(EXAMPLES / "gemm_f32.toml"), "-b", "opencl", "-d", "cpu:0", "--shapes", "64",
         "--drawn", "1", "--seed", "4", "--budget", "0.5", "--peers", "none",
         "--json", str(json_path), "--plot", str(plot)]
    )  # fmt: skip
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    data = json.loads(json_path.read_text())
    drawn = bench.drawn(1, 4, "cpu")[0]
    assert [case["class"] for case in data["cases"]] == ["given", "drawn"]
    assert drawn.name in out
    assert "seed 4" in out
    assert "worst" in out
    assert plot.read_bytes().startswith(b"\x89PNG")


@needs_cpu
def test_json_to_standard_output_is_json_alone(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "square", "-b", "opencl", "-d", "cpu:0", "--shapes", "64", "--budget", "0.01"]
    assert cli.run([*words, "--peers", "none", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
