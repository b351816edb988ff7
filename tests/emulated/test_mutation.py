"""The verdicts on mutants, on a device that runs here: each way in which a kernel may fall, and a sample."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path

import pytest

import tilegen as tg
from tilegen import registry
from tilegen.backend import Device
from tilegen.build import find_device
from tilegen.cli import run as tilegen
from tilegen.cli.mutating import corpus
from tilegen.errors import BackendError, SpecError, VerifyError
from tilegen.mutation import journal, mutants, mutate
from tilegen.mutation.explained import read
from tilegen.mutation.journal import NATIVE, RACES, Journal
from tilegen.mutation.language import Support
from tilegen.mutation.pool import CRASHED, TIMED_OUT, Pool, Verdict
from tilegen.mutation.problems import race_problems, trials
from tilegen.mutation.report import table, text, to_dict
from tilegen.mutation.run import Judged, _race_checked, gathered, support_of
from tilegen.mutation.worker import (
    ASSERTED,
    COMPILES_NOT,
    REFUSED,
    STRAY,
    SURVIVED,
    UNFIT,
    WRONG,
    Task,
)
from tilegen.processors import cores
from tilegen.render import KernelSource

SPEC = tg.TileSpec(block=(8, 32, 4), warp=(8, 16), pins={"opencl": {"form": "vector_fragment"}})


MUTATED = ("opencl", "cuda")


@pytest.fixture(scope="module")
def device() -> Device:
    found = [d for d in registry.get("opencl").devices() if d.arch.kind == "cpu"]
    if not found:
        pytest.skip("no OpenCL device of this machine's processor is here")
    return found[0]


@pytest.fixture(scope="module")
def source(device: Device) -> KernelSource:
    return tg.emit(tg.lower(SPEC, "opencl", device.arch))


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def judge(pool: Pool, source: KernelSource, device: Device):
    (_, sound), = pool.run([("", Task(source, None, device.selector, 60.0))])  # fmt: skip
    assert sound.kind == SURVIVED
    assert len(sound.taken) > len(trials(source.plan))

    def judge(old: str, new: str, seconds: float = 5.0) -> Verdict:
        assert old in source.text
        changed = source.text.replace(old, new)
        ((mark, verdict),) = pool.run(
            [(old, Task(source, changed, device.selector, seconds, sound.taken))]
        )
        assert mark == old
        return verdict

    return judge


STORED = "d + row * ldd + col"


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (COMPILES_NOT, "const long row0 =", "const long row_ ="),
        (ASSERTED, "ROWS = ", "ROWS = 1 + "),
        (WRONG, "alpha == 0 ? 0 : K", "0"),
        (STRAY, STORED, f"{STORED} - 40000"),
        (CRASHED, STORED, f"{STORED} + 1000000000"),
        (REFUSED, "THREADS, 1, 1", "THREADS + 1, 1, 1"),
        (TIMED_OUT, "k0 < k_end; k0 += BLOCK_K", "k0 < k_end; k0 += 0"),
        (SURVIVED, "TILE_GROUP = 8", "TILE_GROUP = 7"),
    ],
)
def test_verdicts(judge, kind: str, old: str, new: str) -> None:
    verdict = judge(old, new)
    assert (verdict.kind, verdict.detail) == (kind, verdict.detail)
    assert verdict.detail or kind == SURVIVED


def test_a_process_that_ended_is_replaced(judge) -> None:
    assert judge(STORED, f"{STORED} + 1000000000").kind == CRASHED
    assert judge("TILE_GROUP = 8", "TILE_GROUP = 9").kind == SURVIVED


def test_an_unchanged_text_that_fails_is_refused(source, device, pool: Pool) -> None:
    broken = replace(source, text=source.text.replace("beta != 0", "beta == 0"))
    ((_, verdict),) = pool.run([("", Task(broken, None, device.selector, 60.0))])
    assert verdict.kind in (UNFIT, CRASHED)


def test_nothing_is_mutated_where_the_text_fails(device, monkeypatch) -> None:
    from tilegen.mutation import run

    def emit(plan):
        good = tg.emit(plan)
        return replace(good, text=good.text.replace("alpha == 0 ? 0 : K", "K > 5 ? 5 : K"))

    monkeypatch.setattr(run, "emit", emit)
    with pytest.raises(VerifyError, match="nothing was mutated"):
        mutate([SPEC], "opencl", device, sample=1, jobs=1)


def test_a_sample_is_killed_or_explained(device, tmp_path: Path, capsys) -> None:
    """The same one each time, over the whole corpus; its report in all three forms."""
    result = mutate(corpus("opencl"), "opencl", device, sample=10, seed=0, jobs=min(2, cores()))
    assert len(result.judged) == 10
    assert [str(one.mutant) for one in result.unexplained] == []
    assert result.rate() > 0.7
    said = to_dict(result)
    assert json.loads(json.dumps(said))["mutants"] == 10
    assert f"{len(result.judged)} mutants" in text(result)
    assert "| all | all | 10 |" in table(result)


@pytest.mark.parametrize("number", [2, 12], ids=["fma", "mma_sync"])
def test_a_sample_of_cuda_is_killed_or_explained_on_the_emulator(number: int) -> None:
    """The same one each time, of a kernel of the corpus that holds much of its form's template."""
    quick = find_device(registry.get("cuda"), None, "emulator:quick")
    some = corpus("cuda")[number : number + 1]
    result = mutate(some, "cuda", quick, sample=8, seed=2, jobs=min(2, cores()))
    assert len(result.judged) == 8
    assert [str(one.mutant) for one in result.unexplained] == []
    assert sum(not one.survived for one in result.compiled) >= 5


def test_verdicts_are_kept_and_found_again(source, device, tmp_path: Path) -> None:
    kept = Verdict(WRONG, "D[0, 0]", 0.25)
    Journal(tmp_path / "v").keep("text", source, device, "native", kept)
    again = Journal(tmp_path / "v")
    assert again.find("text", source, device, "native") == kept
    assert again.find("other", source, device, "native") is None
    assert again.find("text", source, device, "races") is None
    (tmp_path / "v").write_text("{}\n")
    with pytest.raises(SpecError, match="line 1: it is no verdict"):
        Journal(tmp_path / "v")


def test_a_kill_holds_when_trials_are_added_and_a_survival_does_not(
    source, device, tmp_path: Path, monkeypatch
) -> None:
    every = trials(source.plan)
    monkeypatch.setattr(journal, "trials", lambda plan: every[:-1])
    before = Journal(tmp_path / "v")
    before.keep("killed", source, device, NATIVE, Verdict(WRONG, "", 0.0))
    before.keep("alive", source, device, NATIVE, Verdict(SURVIVED, "", 0.0))
    found = {}
    for name, some in (("more", every), ("same", every[:-1]), ("others", every[1:])):
        monkeypatch.setattr(journal, "trials", lambda plan, some=some: some)
        again = Journal(tmp_path / "v")
        found[name] = [
            again.find(text, source, device, NATIVE) is not None for text in ("killed", "alive")
        ]
    assert found == {"more": [True, False], "same": [True, True], "others": [False, False]}


def lines_of(backend: str, template: str) -> list[str]:
    """The lines of a template, stripped, without the shortest; as patterns, what Jinja fills in open."""
    folder = files("tilegen_templates") / backend
    lines = (line.strip() for line in (folder / template).read_text().splitlines())
    filled = re.compile(r"\{\{.*?\}\}")
    return [
        ".*".join(re.escape(part) for part in filled.split(line))
        for line in lines
        if len(line) > 6 and "{%" not in line and len(filled.sub("", line)) > 6
    ]


@cache
def corpus_texts(backend: str) -> tuple[str, ...]:
    """On the arch that the mutants run on: this machine's processor, or the emulator's."""
    plugin = registry.get(backend)
    devices = (*plugin.devices(), *plugin.checkers())
    found = [d for d in devices if d.arch.kind == "cpu" or d.rung == "emulator"]
    if not found:
        pytest.skip(f"no {backend} device of this machine's processor is here")
    return tuple(tg.emit(tg.lower(s, backend, found[0].arch)).text for s in corpus(backend))


def every_template() -> list[tuple[str, str]]:
    return [
        (backend, file.name)
        for backend in MUTATED
        for file in sorted((files("tilegen_templates") / backend).iterdir(), key=lambda f: f.name)
        if file.name.endswith(".j2")
    ]


@pytest.mark.parametrize(("backend", "template"), every_template())
def test_the_corpus_holds_every_statement_of_every_template(backend: str, template: str) -> None:
    texts = corpus_texts(backend)
    lines = lines_of(backend, template)
    absent = [line for line in lines if not any(re.search(line, text) for text in texts)]
    assert absent == []


@pytest.mark.parametrize(
    ("backend", "code"),
    [
        ("opencl", "barrier(CLK_LOCAL_MEM_FENCE);"),
        ("cuda", "__syncthreads();"),
        ("cuda", "wait_for_copies();"),
        ("cuda", "commit_copies();"),
        ("cuda", "cp.async.wait_group"),
        *(
            (backend, code)
            for backend in MUTATED
            for code in ("alpha == 0 ? 0 : K", "if (beta != 0)")
        ),
    ],
)
def test_every_barrier_and_every_test_of_alpha_and_beta_has_mutants(
    backend: str, code: str
) -> None:
    """Each place of it, in each text that holds it."""
    held = 0
    for held_text, changed in zip(corpus_texts(backend), changed_lines(backend), strict=True):
        lines = {n for n, line in enumerate(held_text.splitlines(), 1) if code in line}
        assert lines <= changed
        held += len(lines)
    assert held


@cache
def changed_lines(backend: str) -> tuple[set[int], ...]:
    """The lines of each text of the corpus in which some mutant differs."""
    language = support_of(backend).language
    return tuple({m.line for m in mutants(text, language)} for text in corpus_texts(backend))


@pytest.mark.parametrize("stages", [2, 3])
def test_an_epilogue_that_overwrites_the_last_tile_is_a_race_of_every_pipeline(stages: int) -> None:
    """Its barrier is missed only where the last tile lies in the stage that it writes over."""
    types = dict.fromkeys(("a", "b", "c", "d"), "f16") | {"acc": "f32"}
    spec = tg.TileSpec(block=(32, 16, 16), warp=(16, 16), stages=stages, types=types)
    source = tg.emit(tg.lower(spec, "cuda", "sm_80"))
    comment = "    // The tiles of A and B are not needed any more.\n"
    barrier = comment + "    __syncthreads();\n"
    assert barrier in source.text
    races, problems = support_of("cuda").races, race_problems(source.plan)
    assert races is not None
    assert races(source, problems) == []
    (told,) = races(replace(source, text=source.text.replace(barrier, comment)), problems)
    assert "data-race" in told


def test_places_that_differ_in_numbers_alone_are_mutants_of_their_own() -> None:
    """Copies of 8 bytes and of 16, two permutations of bytes: each place of a text is changed."""
    support, spec = support_of("cuda"), next(s for s in corpus("cuda") if s.types.a == "f16")
    text = tg.emit(tg.lower(spec, "cuda", "sm_80"))
    every = mutants(text.text, support.language)
    assert len(gathered([text], support)) == len(every)
    assert len({mutant.key for mutant in every}) < len(every)


def test_a_backend_without_a_language_is_refused() -> None:
    class Bare:
        name = "bare"

    registry.register(Bare())  # type: ignore[arg-type]
    try:
        with pytest.raises(BackendError, match="describes no language"):
            support_of("bare")
    finally:
        registry._added.pop("bare")


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('before = "x"', "reason is missing"),
        ('reason = "r"\nkind = "luck"', "luck"),
        ('reason = "r"\nline = 3', "'line' is not a known key"),
        ('reason = "r"\nbefore = "("', "no regular expression"),
    ],
)
def test_explanations_that_are_none(tmp_path: Path, entry: str, says: str) -> None:
    file = tmp_path / "explained.toml"
    file.write_text(f"[[explained]]\n{entry}\n")
    with pytest.raises(SpecError, match=says):
        read(file)


@pytest.mark.parametrize("backend", MUTATED)
def test_every_explanation_is_read(backend: str) -> None:
    support: Support = support_of(backend)
    assert all(len(e.reason) > 20 for e in read(support.explained))


@pytest.mark.parametrize(
    "arguments",
    [
        ["mutate", "--corpus"],
        ["mutate", "--backend", "opencl"],
        ["mutate", "x.toml", "--corpus", "--backend", "opencl"],
        ["mutate", "nowhere.toml", "--backend", "opencl"],
        ["mutate", "--corpus", "--backend", "opencl", "--arch", "vax"],
        ["mutate", "--corpus", "--backend", "cuda", "--device", "emulator:quick", "--form", "wmma"],
    ],
)
def test_wrong_requests_are_one_sentence_and_status_2(arguments: list[str], capsys) -> None:
    assert tilegen(arguments) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_dash_sends_the_json_to_standard_output(device, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.toml").write_text(SPEC.to_toml(), encoding="utf-8")
    words = ["mutate", "spec.toml", "--backend", "opencl", "--sample", "1", "--jobs", "1"]
    assert tilegen([*words, "--json", "-"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.toml"]


def test_a_race_checker_that_faults_the_unchanged_text_kills_nothing(source, device) -> None:
    mutant = mutants(source.text, support_of("opencl").language)[0]
    for faults_all, kind in ((True, SURVIVED), (False, RACES)):
        one = Judged(mutant, source, Verdict(SURVIVED, "", 0.0))

        def races(asked: KernelSource, problems, faults_all=faults_all) -> list[str]:
            return ["race"] if faults_all or asked.text != source.text else []

        _race_checked(races, [(one, [(source, mutant)])], device, Journal(None), 1)
        assert one.verdict.kind == kind
