"""The command line: right status, one sentence for each error, nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import tilegen.cli as cli
from tilegen import registry
from tilegen.backend import Toolchain
from tilegen.cli import built
from tilegen.cli.starting import STARTING_TYPES
from tilegen.errors import CompileError, TilegenWarning, VerifyError
from tilegen.spec import TileSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEC = str(EXAMPLES / "gemm_f32.toml")
BATCHED = str(EXAMPLES / "gemm_f32_batched_bias_gelu.toml")
OPENCL = ("--backend", "opencl")
GPU = (*OPENCL, "--arch", "gpu")
needs_device = pytest.mark.skipif(
    not registry.get("opencl").devices(), reason="no OpenCL device: pip install 'tilegen[cpu]'"
)


@pytest.fixture
def refused(run, tmp_path: Path):
    """Run a command that must fail with one sentence, and with the same as JSON."""

    def call(*words: str, status: int = 2) -> str:
        got, out, err = run(*words)
        assert (got, out) == (status, ""), err
        assert err.startswith("tilegen: ")
        assert len(err.splitlines()) == 1, err
        got, out, err = run(*words, "--json")
        assert (got, err) == (status, "")
        told = json.loads(out)
        assert told["error"]
        assert told["kind"]
        return str(told["error"])

    return call


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> str:
    missing = "no compiler here: python -m pip install 'tilegen[cpu]'"
    backend = type(registry.get("opencl"))
    monkeypatch.setattr(backend, "toolchain", lambda *_, **__: Toolchain("none", missing=missing))
    return missing


# ---- what works ---------------------------------------------------------------------------------


def test_init_prints_a_spec_that_reads_back(run):
    status, out, _ = run("init")
    assert status == 0
    assert TileSpec.from_toml(out).block == (128, 128, 32)
    assert "# " in out


@pytest.mark.parametrize("types", sorted(STARTING_TYPES))
def test_init_knows_every_type(run, types):
    status, out, _ = run("init", "--types", types)
    assert status == 0
    assert TileSpec.from_toml(out).types.a == types


@pytest.mark.parametrize("arch", ["cpu", "gpu"])
def test_init_for_a_backend_gives_what_it_can_build(run, tmp_path, arch):
    path = tmp_path / "s.toml"
    assert run("init", *OPENCL, "--arch", arch, "-o", path)[0] == 0
    assert run("plan", path, *OPENCL, "--arch", arch)[0] == 0


def test_init_writes_json_too(run, tmp_path):
    path = tmp_path / "s.json"
    assert run("init", "-o", path)[0] == 0
    assert TileSpec.from_file(path) == TileSpec.from_toml(run("init")[1])


def test_init_overwrites_only_with_force(run, refused, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("mine")
    assert "--force" in refused("init", "-o", str(path))
    assert path.read_text() == "mine"
    assert run("init", "-o", path, "--force")[0] == 0
    assert TileSpec.from_file(path)


def test_plan_and_diff_explain(run, tmp_path):
    status, out, _ = run("plan", SPEC, *GPU)
    assert status == 0
    assert "fragments per warp" in out
    status, out, _ = run("diff", SPEC, BATCHED, *GPU)
    assert status == 0
    assert "128 x 128" in out
    assert "64 x 128" in out
    assert "do not differ" in run("diff", SPEC, SPEC, *GPU)[1]


def test_plan_and_check_take_several_archs(run):
    for command in ("plan", "check"):
        several = (command, SPEC, *OPENCL, "--arch", "cpu,gpu")
        got, out, _ = run(*several)
        alone = [run(command, SPEC, *OPENCL, "--arch", arch)[1] for arch in ("cpu", "gpu")]
        assert (got, out) == (0, "\n".join(alone))
        told = json.loads(run(*several, "--json")[1])[
            f"{'report' if command == 'check' else command}s"
        ]
        alone = [json.loads(run(command, SPEC, *GPU[:-1], a, "--json")[1]) for a in ("cpu", "gpu")]
        assert told == alone


def test_of_several_archs_the_one_that_refuses_is_named(refused, tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("block = [64, 64, 32]\nwarp = [32, 32]\n[types]\na = 'bf16'\nb = 'bf16'\n")
    said = refused("plan", str(path), "-b", "cuda", "--arch", "sm_80,sm_75")
    assert said.startswith("sm_75: types.a = bf16")


def test_build_without_output_prints_a_summary(run):
    status, out, _ = run("build", SPEC, *GPU)
    assert status == 0
    assert "gemm_wide" in out
    assert "planned" in out


def test_build_under_another_name(run, tmp_path):
    assert run("build", SPEC, *GPU, "--name", "attn_qk", "-o", tmp_path)[0] == 0
    made = json.loads((tmp_path / "manifest.json").read_text())
    assert made["spec"]["name"] == "attn_qk"
    assert {e["name"] for e in made["entries"]} == {"attn_qk_wide", "attn_qk_narrow"}
    (header,) = tmp_path.glob("attn_qk_*.h")
    assert '#define ATTN_QK_WIDE_SYMBOL "attn_qk_wide"' in header.read_text()
    (text,) = tmp_path.glob("attn_qk_*.cl")
    assert "gemm" not in text.read_text()
    for name, told in (("for", "name = 'for' is a keyword"), ("a-b", "name = 'a-b' is not a name")):
        status, out, err = run("build", SPEC, *GPU, "--name", name)
        assert (status, out) == (2, "")
        assert told in err


def test_build_writes_a_folder(run, tmp_path):
    folder = tmp_path / "deep" / "out"
    assert run("build", SPEC, *GPU, "-o", folder)[0] == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["schema"] == 1
    assert (folder / manifest["source"]["file"]).exists()
    assert (folder / f"{manifest['name']}.h").exists()
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    before = {p: p.read_bytes() for p in folder.iterdir()}
    assert run("build", SPEC, *GPU, "-o", folder)[0] == 0
    assert {p: p.read_bytes() for p in folder.iterdir()} == before


def test_several_archs_get_a_folder_each(run, tmp_path):
    assert run("build", SPEC, *OPENCL, "--arch", "cpu,gpu", "-o", tmp_path / "o")[0] == 0
    for arch in ("cpu", "gpu"):
        assert json.loads((tmp_path / "o" / arch / "manifest.json").read_text())["arch"] == arch


def test_a_missing_compiler_is_said_and_only_verify_fails(run, refused, no_compiler, tmp_path):
    status, out, _ = run("build", SPEC, *GPU, "-o", tmp_path / "o")
    assert status == 0
    assert no_compiler in out
    assert json.loads((tmp_path / "o" / "manifest.json").read_text())["binary"] is None
    assert refused("build", SPEC, *GPU, "--verify", "-o", str(tmp_path / "p")) == no_compiler
    assert not (tmp_path / "p").exists()


@needs_device
def test_build_and_verify(run, tmp_path):
    status, out, _ = run(
        "build", SPEC, *OPENCL, "--verify", "--examples", "3", "-o", tmp_path / "o"
    )
    assert status == 0
    assert "measured" in out
    assert "3 problems" in out
    assert list((tmp_path / "o").glob("*.clbin"))


@needs_device
def test_verify_one_and_all(run):
    for backend in ("opencl", "all"):
        status, out, _ = run("verify", BATCHED, "--backend", backend, "--examples", "2")
        assert status == 0
        assert "2 problems" in out


@needs_device
def test_verify_on_a_named_device(run):
    device = registry.get("opencl").devices()[0]
    words = ("verify", SPEC, *OPENCL, "--examples", "1", "--device", device.selector)
    assert run(*words)[0] == 0


def test_targets(run):
    status, out, _ = run("targets")
    assert status == 0
    assert "opencl" in out
    assert "gpu" in out


def test_schema_is_one(run):
    import jsonschema

    schema = json.loads(run("schema")[1])
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(TileSpec.from_file(SPEC).model_dump(mode="json", exclude_none=True), schema)


def test_cache(run, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "c"))
    assert run("cache", "path")[1].strip() == str(tmp_path / "c")
    assert run("cache", "clear")[0] == 0
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ("0" * 64 + ".bin")).write_bytes(b"12345")
    (tmp_path / "c" / "thesis.bin").write_bytes(b"mine")
    assert run("cache", "size")[1].startswith("1 files, 5 bytes")
    assert json.loads(run("cache", "clear", "--json")[1])["removed"] == 1
    assert [p.name for p in (tmp_path / "c").iterdir()] == ["thesis.bin"]


@pytest.mark.parametrize("words", [(), ("--help",), ("cache",), ("build", "--help")])
def test_help(run, words):
    status, out, _ = run(*words)
    assert status == 0
    assert "Usage" in out


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("plan", SPEC, *GPU),
        ("diff", SPEC, BATCHED, *GPU),
        ("build", SPEC, *GPU),
        ("check", SPEC, *GPU),
        ("targets",),
        ("schema",),
        ("cache", "path"),
        ("cache", "size"),
        ("--version",),
        pytest.param(("verify", SPEC, *OPENCL, "--examples", "1"), marks=needs_device),
        pytest.param(("build", SPEC, *OPENCL, "--verify", "--examples", "1"), marks=needs_device),
    ],
    ids=" ".join,
)
def test_every_command_prints_json(run, words):
    status, out, err = run(*words, "--json")
    assert (status, err) == (0, "")
    assert isinstance(json.loads(out), dict)


# ---- what is wrong with the request -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("block = [", "not valid TOML"),
        ("blok = [64, 64, 16]\nwarp = [32, 32]", "did you mean 'block'"),
        ("block = [64, 64, 16]", "warp is missing"),
        ("block = [64, 64, 16]\nwarp = [48, 32]", "warp"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\n[types]\na = 'f33'", "did you mean"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\n[types]\na = 's8'", "s8"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\nstages = 0", "stages"),
        ("block = [0, 64, 16]\nwarp = [32, 32]", "block"),
        ("block = [64, 64, 1.5]\nwarp = [32, 32]", "block"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\nname = 'a\"b'", "not a name"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\nname = '../up'", "not a name"),
        ('block = [64, 64, 16]\nwarp = [32, 32]\nname = "a\\n"', "not a name"),
        ('block = [64, 64, 16]\nwarp = [32, 32]\nname = "a*/ b"', "not a name"),
        ('block = [64, 64, 16]\nwarp = [32, 32]\n[pins.opencl]\nform = "x; y"', "pins.opencl.form"),
        ("block = [64, 64, 16]\nwarp = [32, 32]\n[pins.opencl]\nform = 'fast'", "form"),
        ("x = " + "[" * 5000, "nested too deeply"),
        (
            "block = [64, 64, 16]\nwarp = [32, 32]\n" + "[[epilogue]]\nop = 'relu'\n" * 3000,
            "32 is all",
        ),
        ("block = [64, 64, 16]\nwarp = [32, 32]\nblock = [32, 32, 16]", "not valid TOML"),
        ("block = [" + "1" * 5000 + ", 64, 16]", ""),
    ],
)
def test_bad_specs(refused, tmp_path, text, says):
    path = tmp_path / "s.toml"
    path.write_text(text)
    for words in (("plan",), ("build", "-o", str(tmp_path / "out")), ("verify",), ("check",)):
        assert says in refused(words[0], str(path), *GPU, *words[1:])
    assert [p.name for p in tmp_path.iterdir()] == ["s.toml"]


def test_bad_json_and_bytes(refused, tmp_path):
    twice = b'{"block": [64, 64, 16], "block": [32, 32, 16], "warp": [32, 32]}'
    for name, data in (
        ("s.json", b"{"),
        ("w.json", twice),
        ("t.json", b"[1]"),
        ("u.toml", b"\xff\xfe"),
        ("v.json", b""),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        assert name in refused("plan", str(path), *GPU)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "nope.toml", *GPU), "no such file"),
        (("plan", str(EXAMPLES), *GPU), "directory"),
        (("plan", SPEC, "--backend", "opencll"), "did you mean 'opencl'"),
        (("plan", SPEC, *OPENCL, "--arch", "gpuu"), "did you mean 'gpu'"),
        (("build", SPEC, *OPENCL, "--arch", "gpu,gpu"), "twice"),
        (("build", SPEC, *OPENCL, "--arch", "gpu,"), "empty"),
        (("build", SPEC, *OPENCL, "--device", "abacus"), "abacus"),
        (("verify", SPEC, *OPENCL, "--device", "abacus"), "abacus"),
        (("verify", SPEC, "--backend", "opencl,cudaa"), "cudaa"),
        (("verify", SPEC, *OPENCL, "--examples", "0"), "--examples"),
        (("verify", SPEC, *OPENCL, "--examples", "-3"), "--examples"),
        (("build", SPEC, *OPENCL, "--verify", "--examples", "0"), "--examples"),
        (("verify", SPEC, *OPENCL, "--seed", "x7"), "--seed"),
        (("plan", SPEC), "--backend"),
        (("check", SPEC), "--backend"),
        (("check", "nope.toml", *GPU), "no such file"),
        (("check", SPEC, *GPU, "--gemm", "A B D"), "--gemm is for kernel files"),
        (("check", ""), "path is empty"),
        (("plan",), "SPEC"),
        (("bild", SPEC), "bild"),
        (("plan", SPEC, *GPU, "--fast"), "--fast"),
        (("init", "--types", "f31"), "did you mean"),
        (("init", "--arch", "gpu"), "--backend"),
        (("init", "--types", "e4m3", *GPU), "e4m3"),
        (("init", "-o", "/nowhere/at/all.toml"), "/nowhere/at/all.toml"),
        (("init", "-o", str(EXAMPLES)), "folder"),
        (("cache", "wash"), "wash"),
        (("init", "-o", ""), "path is empty"),
        (("build", SPEC, *GPU, "-o", ""), "path is empty"),
        (("plan", "", *GPU), "path is empty"),
        (("diff", SPEC, "", *GPU), "path is empty"),
        (("verify", SPEC, "--backend", "all,opencl"), "stands alone"),
        (("verify", SPEC, "--backend", "opencl,all"), "stands alone"),
        *(
            (
                (*words, "--arch", "cpu,gpu"),
                f"{words[0]} takes one; plan, build, verify and check take",
            )
            for words in (
                ("diff", SPEC, SPEC, *OPENCL),
                ("choose", "64", "64", "64", *OPENCL),
                ("sweep", SPEC, *OPENCL),
                ("init", *OPENCL),
            )
        ),
        (("plan", SPEC, *OPENCL, "--arch", "gpu,cpuu"), "did you mean 'cpu'"),
    ],
    ids=lambda value: " ".join(value)[-40:] if isinstance(value, tuple) else None,
)
def test_bad_requests(refused, words, says):
    assert says in refused(*words)


def test_output_that_is_a_file(refused, tmp_path):
    path = tmp_path / "taken"
    path.write_text("mine")
    for output in (path, path / "below"):
        assert str(output) in refused("build", SPEC, *GPU, "-o", str(output))
    assert path.read_text() == "mine"


def test_output_that_cannot_be_made(refused):
    assert "/proc/" in refused("build", SPEC, *GPU, "-o", "/proc/tilegen/out")


@pytest.mark.parametrize("step", ["save", "replace"])
@pytest.mark.parametrize("several", [False, True])
def test_a_full_disk_leaves_nothing(refused, monkeypatch, tmp_path, step, several):
    break_at(monkeypatch, step, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/x"), several)
    words = (*OPENCL, "--arch", "cpu,gpu") if several else GPU
    assert "no space left" in refused("build", SPEC, *words, "-o", str(tmp_path / "a" / "b"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["emit", "save", "replace"])
def test_ctrl_c_leaves_nothing(run, monkeypatch, tmp_path, step):
    break_at(monkeypatch, step, KeyboardInterrupt(), False)
    status, out, err = run("build", SPEC, *GPU, "-o", tmp_path / "a" / "b")
    assert (status, out) == (130, "")
    assert err == "tilegen: interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_an_earlier_build_wrote(run, monkeypatch, tmp_path):
    assert run("build", SPEC, *GPU, "-o", tmp_path)[0] == 0
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    break_at(monkeypatch, "replace", KeyboardInterrupt(), False)
    assert run("build", SPEC, *GPU, "-o", tmp_path)[0] == 130
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def break_at(monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException, later: bool) -> None:
    """Let a step of a build fail, the first or a later time that it runs."""
    if step == "replace":
        # save() renames too, within the hidden folder; only the way out of it shall fail.
        real, counts = os.replace, {"calls": 0}

        def replace(source: Any, target: Any) -> None:
            if ".tilegen-" in str(target) or ".tilegen-" not in str(source):
                real(source, target)
                return
            counts["calls"] += 1
            if counts["calls"] > (5 if later else 1):
                raise error
            real(source, target)

        monkeypatch.setattr(os, "replace", replace)
        return
    real_step, calls = getattr(built, step), []

    def failing(*words: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > (1 if later else 0):
            # As far as the real step gets before it fails: a file is already there.
            if step == "save":
                words[2].mkdir(parents=True, exist_ok=True)
                (words[2] / "half.cl").write_text("half")
            raise error
        return real_step(*words, **named)

    monkeypatch.setattr(built, step, failing)


def test_a_compiler_that_refuses(run, monkeypatch, tmp_path):
    monkeypatch.setenv("TILEGEN_CACHE", str(tmp_path / "cache"))
    backend = type(registry.get("opencl"))
    monkeypatch.setattr(backend, "toolchain", lambda *_, **__: Toolchain("clc", "9"))
    log = "\n".join(f"line {n}" for n in range(40))

    def refuse(self: Any, source: Any, toolchain: Any) -> Any:
        raise CompileError("clc refuses the text", compiler="clc 9", flags="-x", log=log)

    monkeypatch.setattr(backend, "compile", refuse)
    status, out, err = run("build", SPEC, *GPU, "-o", tmp_path / "out")
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert lines[0] == "tilegen: clc refuses the text"
    assert "  compiler: clc 9" in lines
    assert "  | line 0" in lines
    assert "line 39" not in err
    told = json.loads(run("build", SPEC, *GPU, "--json")[1])
    assert "gemm_wide" in Path(told["source"]).read_text()
    assert told["log"] == log
    assert not (tmp_path / "out").exists()
    assert json.loads(run("cache", "clear", "--json")[1])["removed"] == 1


@needs_device
def test_a_wrong_result_is_status_1(run, refused, monkeypatch, tmp_path):
    def wrong(*_: Any, **__: Any) -> Any:
        raise VerifyError("row 3, column 4: got 1, want 2", row=3, col=4)

    monkeypatch.setattr(sys.modules["tilegen.verify"], "verify", wrong)
    assert "row 3" in refused("verify", SPEC, *OPENCL, status=1)
    words = ("build", SPEC, *OPENCL, "--verify", "-o", str(tmp_path / "o"))
    assert "row 3" in refused(*words, status=1)
    assert not (tmp_path / "o").exists()


def test_an_unsteady_result_is_status_1():
    from hypothesis.errors import Flaky

    told = cli.explained(Flaky("it passed the second time"))
    assert told is not None
    assert told["kind"] == "VerifyError"


def test_a_warning_of_tilegen_s_is_one_line(run, monkeypatch):
    from tilegen.cli import explaining

    def warn(*given):
        warnings.warn("it will take long", TilegenWarning, stacklevel=2)
        return lower(*given)

    lower = explaining.lower
    monkeypatch.setattr(explaining, "lower", warn)
    status, out, err = run("plan", SPEC, *GPU)
    assert (status, err) == (0, "tilegen: it will take long\n")
    assert out


def test_a_bug_is_no_sentence():
    assert cli.explained(AttributeError("a fault of ours")) is None


# ---- as a process -------------------------------------------------------------------------------


def process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tilegen", *words]
    return subprocess.run(command, capture_output="stdout" not in options, text=True, **options)


def test_the_version_is_told_by_a_process_of_its_own():
    done = process("--version")
    assert done.stdout.startswith("tilegen ")
    assert (done.returncode, done.stderr) == (0, "")


def test_import_loads_nothing_heavy():
    heavy = ["numpy", "hypothesis", "rich", "jinja2", "platformdirs", "pyopencl", "tilegen_opencl"]
    code = f"import sys, tilegen.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_core_alone_plans_and_builds(tmp_path):
    code = (
        "import sys; sys.modules['pyopencl'] = None\n"
        "from tilegen.cli import run\n"
        f"sys.exit(run(['plan', {SPEC!r}, '--backend', 'opencl'])"
        f" or run(['build', {SPEC!r}, '--backend', 'opencl', '-o', {str(tmp_path / 'o')!r}])"
        " or run(['targets']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "opencl cpu" in done.stdout
    assert "tilegen[cpu]" in done.stdout
    assert (tmp_path / "o" / "manifest.json").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_that_cannot_be_printed():
    with open("/dev/full", "w") as full:
        done = process("plan", SPEC, *GPU, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == "tilegen: no space left on device\n"


@pytest.mark.skipif(os.name != "posix", reason="pipes of a POSIX shell")
def test_a_reader_that_leaves():
    command = f"{sys.executable} -m tilegen schema | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert done.stderr == ""


@needs_device
def test_verify_leaves_nothing_where_the_user_stands(tmp_path):
    assert process("verify", SPEC, *OPENCL, "--examples", "2", cwd=tmp_path).returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_piped_output_is_plain(tmp_path):
    for words in (("plan", SPEC, *GPU), ("build", SPEC, *GPU), ("--help",)):
        done = process(*words)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout + done.stderr
        assert done.stderr == ""


needs_posix = pytest.mark.skipif(os.name != "posix", reason="streams of a POSIX shell")


def shell(line: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a line in which TILEGEN stands for the command."""
    command = line.replace("TILEGEN", f"{sys.executable} -m tilegen")
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, **options)


@needs_posix
@pytest.mark.parametrize(
    ("closed", "status"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0)], ids=str
)
def test_closed_streams(closed: str, status: int, tmp_path: Path) -> None:
    for words in (f"plan {SPEC} --backend opencl --arch gpu", "--version", "--help"):
        done = shell(f"TILEGEN {words} {closed}")
        assert (done.returncode, done.stderr) == (status, "")
    # What the command writes must not land in a file that took the number of a stream.
    done = shell(f"TILEGEN build {SPEC} --backend opencl --arch gpu -o {tmp_path} {closed}")
    assert (done.returncode, done.stderr) == (status, "")
    assert json.loads((tmp_path / "manifest.json").read_text())["schema"] == 1
    assert shell(f"TILEGEN plan nope.toml --backend opencl {closed}").returncode == 2


@needs_posix
@pytest.mark.parametrize("reader", ["true", "head -1", "head -c 1"])
@pytest.mark.parametrize("into", ["|", "2>&1 |"])
def test_a_reader_that_leaves_early(reader: str, into: str) -> None:
    for words in (f"plan {SPEC} --backend opencl --arch gpu --json", "plan nope --backend opencl"):
        done = shell(f"set -o pipefail; TILEGEN {words} {into} {reader}")
        assert "Traceback" not in done.stdout + done.stderr
        assert "Exception ignored" not in done.stdout + done.stderr
        assert done.returncode in (0, 2, 141)


@needs_device
@needs_posix
def test_a_home_that_cannot_be_written(tmp_path: Path) -> None:
    home = {k: v for k, v in os.environ.items() if k not in ("TILEGEN_CACHE", "XDG_CACHE_HOME")}
    done = process("verify", SPEC, *OPENCL, "--examples", "2", env={**home, "HOME": "/proc"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 problems" in done.stdout


INTERRUPT = """
import os, signal, sys
class Sentry:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Sentry())
sys.argv = [{command!r}, "--version"]
{early}
from tilegen.cli import main
sys.exit(main())
"""


@needs_posix
@pytest.mark.parametrize("module", ["pydantic", "typer", "tilegen.cli.starting"])
def test_ctrl_c_while_the_command_imports(module: str) -> None:
    code = INTERRUPT.format(module=module, command="/usr/bin/tilegen", early="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "tilegen: interrupted\n")


@needs_posix
def test_ctrl_c_in_another_program_is_its_own() -> None:
    code = INTERRUPT.format(module="pydantic", command="/usr/bin/other", early="")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "KeyboardInterrupt" in done.stderr
    assert done.returncode == -2
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)"
    code = INTERRUPT.format(module="pydantic", command="/usr/bin/tilegen", early=ignored)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0


def test_which_process_is_the_command() -> None:
    from tilegen.interrupt import is_command

    assert is_command(["/usr/bin/tilegen", "plan"], ["python", "/usr/bin/tilegen", "plan"])
    assert is_command(["-m", "plan"], ["python", "-X", "dev", "-m", "tilegen", "plan"])
    assert not is_command(["-m"], ["python", "-m", "pytest", "tilegen"])
    assert not is_command(["run.py", "-m", "tilegen"], ["python", "run.py", "-m", "tilegen"])
    assert not is_command(["", "tilegen"], ["python"])
    assert not is_command([], ["python"])


def test_ctrl_c_is_an_exception_again_once_the_command_runs() -> None:
    import signal

    from tilegen import interrupt

    before = signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        interrupt.expect()
        assert signal.getsignal(signal.SIGINT) is interrupt.leave
        interrupt.ready()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
