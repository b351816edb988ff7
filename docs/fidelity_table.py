"""Writes docs/fidelity.md and docs/fidelity-rows.md: a GPU's record of the corpus beside the emulator's.

The words of the first stand in fidelity.md.in; numbers, tables and lists are filled in here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from emulated.faults import corpus
from fidelity_record import CLASSES, OUTCOMES, Row, collect, notes, wilson

WORDS = Path(__file__).with_name("fidelity.md.in")
ASYNC_PROXY = ("wgmma_gemm", "wgmma_stores", "bulk_pipeline", "tma_transpose")
RULES = {
    "data-race": "CUDA's programming guide, \"Memory fence functions\": two threads that touch one place "
    "without synchronisation, one of them writing, are undefined (PTX leaves open which value is read)",
    "async-in-flight": "PTX ISA: results of cp.async, bulk copies and wgmma are there after their wait, and "
    "what they read must stay until then",
    "missing-proxy-fence": "PTX ISA, \"Async proxy\": accesses of one place through two proxies need a "
    "fence.proxy.async between them",
    "missing-fence": "PTX ISA, wgmma.fence: it must stand before the first wgmma and wherever registers "
    "were written",
    "bad-mbarrier": "PTX ISA, \"mbarrier\": operations on what is no valid object, and an init of one "
    "that is, are undefined",
    "deadlock": "Some order of threads never ends",
    "divergent-barrier": "PTX ISA, bar: each warp takes part in a phase once",
    "divergent-collective": "CUDA's programming guide: the calling lane must be in its own mask, and all "
    "lanes of the mask must call",
    "out-of-bounds": "C++: an access outside of its object is undefined",
    "missing-clobber": "Inline PTX: an asm statement that touches memory names \"memory\" as clobbered",
}  # fmt: skip


def _grid(head: Sequence[str], body: Iterable[Sequence[Any]], left: int = 1) -> str:
    cells = [[str(c).replace("|", "\\|") for c in row] for row in body]
    ruler = ["---"] * left + ["--:"] * (len(head) - left)
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(head), ruler, *cells])


def _count(rows: Iterable[Row], what: Callable[[Row], bool]) -> int:
    return sum(what(r) for r in rows)


def _blank(number: int) -> str:
    return str(number) if number else ""


def _found(rows: list[Row]) -> list[str]:
    """Texts that are wrong on the device, found, the share's lower bound, found unaided."""
    bad = [r for r in rows if r.bad]
    found = _count(bad, lambda r: not r.clean)
    low = f"{100 * wilson(found, len(bad))[0]:.1f} %" if bad else ""
    return [str(len(bad)), str(found), low, str(_count(bad, lambda r: r.unaided))]


def _agreement(rows: list[Row]) -> str:
    groups = {
        "planted faults": [r for r in rows if r.text.group == "planted"],
        "mutants": [r for r in rows if r.text.group == "mutant"],
        "all": rows,
    }
    head = [
        "",
        "wrong on the device",
        "found",
        "at least (95 %)",
        "found without knowing the results",
    ]
    return _grid(head, [[name, *_found(some)] for name, some in groups.items()])


def _right(rows: list[Row]) -> str:
    right = [r for r in rows if r.outcome == "right"]
    body = []
    for name, some in (
        ("correct kernels", [r for r in right if r.text.group == "correct"]),
        ("harmless changes", [r for r in right if r.text.group != "correct" and not r.text.fault]),
        ("texts with a fault", [r for r in right if r.text.fault]),
    ):
        faulted = [r for r in some if not r.clean]
        body.append([name, len(some), len(some) - len(faulted), len(faulted)])
    return _grid(
        ["right in all 20 launches", "texts", "clean in the emulator", "faulted by it"], body
    )


def _kernels(rows: list[Row]) -> str:
    body = []
    for name in corpus.kernels():
        some = [r for r in rows if r.text.kernel.name == name]
        right = [r for r in some if r.outcome == "right"]
        body.append(
            [name, len(some), *_found(some)[:2], len(right), _count(right, lambda r: r.clean),
             _blank(_count(right, lambda r: not r.clean and r.text.fault)),
             _blank(_count(right, lambda r: not r.clean and not r.text.fault)),
             _blank(_count(some, lambda r: r.bad and r.clean))]
        )  # fmt: skip
    head = ["kernel", "texts", "wrong on the device", "found", "right there", "clean"]
    head += ["stricter", "false alarms", "missed"]
    return _grid(head, body)


def _classes(rows: list[Row]) -> str:
    body = []
    for name in (*CLASSES, "clean"):
        some = [r for r in rows if r.klass == name]
        counts = [_blank(sum(r.outcome == o for r in some)) for o in OUTCOMES]
        body.append([name, len(some), *counts])
    return _grid(["the emulator says", "texts", *OUTCOMES], body)


def _operators(rows: list[Row]) -> str:
    found: dict[str, list[Row]] = {}
    for r in rows:
        if r.text.group == "mutant":
            found.setdefault(r.name.split(": ")[1].split()[0], []).append(r)
    body = []
    for name, some in sorted(found.items()):
        right = [r for r in some if r.outcome == "right"]
        body.append([name, len(some), *_found(some)[:2], len(right), _count(right, lambda r: r.clean),
                     _blank(_count(right, lambda r: not r.clean))])  # fmt: skip
    head = [
        "operator",
        "mutants",
        "wrong on the device",
        "found",
        "right there",
        "clean",
        "stricter",
    ]
    return _grid(head, body)


def _errors(rows: list[Row]) -> str:
    said: dict[str, list[Row]] = {}
    for r in rows:
        if r.outcome in ("error", "hang", "stray"):
            said.setdefault(r.said, []).append(r)
    body = []
    for name, some in sorted(said.items(), key=lambda pair: -len(pair[1])):
        kinds = Counter(k for r in some for k in r.verdict if k != corpus.WRONG)
        body.append([name, ", ".join(f"{k} {n}" for k, n in kinds.most_common()), len(some)])
    head = ["the device says", "the emulator's findings, in how many of the texts", "texts"]
    return _grid(head, body, left=2)


def _bits(rows: list[Row]) -> tuple[str, list[Row]]:
    """How many digests agree, and wrong texts without a finding whose digests do not."""
    same = [r for r in rows if r.device.get("results") == 1 and r.outcome in ("right", "wrong")]
    body, other = [], []
    wrong = [r for r in same if r.outcome == "wrong"]
    for name, some in (
        ("clean in the emulator, right on the device", [r for r in same if r.clean]),
        ("wrong on both sides, without another finding", [r for r in wrong if not r.unaided]),
        ("wrong on the device, with findings", [r for r in wrong if r.unaided]),
    ):
        equal = [r for r in some if r.emulator["digest"] == r.device["digest"]]
        body.append([name, len(some), len(equal)])
        if "without" in name:
            other = [r for r in some if r not in equal]
    return _grid(
        ["the same bits in all 20 launches", "texts", "the emulator's bits too"], body
    ), other


def _sanitizer(rows: list[Row]) -> str:
    body = []
    for tool in ("racecheck", "memcheck", "synccheck"):
        some = [r for r in rows if tool in r.sanitizer]
        right = [r for r in some if r.text.group == "correct"]
        faults = [r for r in some if r.text.group != "correct" and not r.clean]
        bad = [r for r in faults if r.bad]
        sees = [sum(tool in r.errors for r in x) for x in (right, faults, bad)]
        body.append([tool, len(some), f"{sees[0]} of {len(right)}", f"{sees[1]} of {len(faults)}",
                     f"{sees[2]} of {len(bad)}"])  # fmt: skip
    head = ["tool", "texts", "errors in correct kernels", "errors where the emulator finds a fault"]
    head += ["errors where the device is wrong too"]
    return _grid(head, body)


def _bullets(rows: list[Row], text: Callable[[Row], str], none: str) -> str:
    return "\n".join(f"- **{r.name}**: {text(r)}" for r in rows) or none


def _main_kind(row: Row) -> str:
    for kind in RULES:
        if kind in row.verdict:
            return kind
    raise ValueError(f"{row.name}: no documented rule for {row.verdict}")


def _stricter(rows: list[Row]) -> str:
    parts = []
    for kind, rule in RULES.items():
        some = [r for r in rows if _main_kind(r) == kind]
        if some:
            body = [[r.name, r.why, ", ".join(r.verdict), r.sanitized] for r in some]
            head = ["text", "what is wrong", "emulator", "sanitizer"]
            texts = f"{len(some)} texts" if len(some) > 1 else "one text"
            parts.append(f"**{kind}**, {texts}. {rule}.\n\n{_grid(head, body, left=4)}")
    return "\n\n".join(parts)


def table(record: dict[str, Any]) -> str:
    """The page."""
    rows = collect(record)
    right = [r for r in rows if r.outcome == "right"]
    stricter = [r for r in right if not r.clean and r.text.fault]
    alarms = [r for r in right if not r.clean and not r.text.fault]
    missed = [r for r in rows if r.clean and (r.bad or (r.errors and r.text.group != "correct"))]
    harmless = [r for r in right if not r.text.fault]
    noted = [r for r in stricter if "arguable" in notes().get(r.name, {})]
    bits, other = _bits(rows)
    bad = [r for r in rows if r.bad]
    engine = [
        r for r in rows
        if r.text.group == "planted" and "racecheck" in r.sanitizer and r.text.kernel.name in ASYNC_PROXY
    ]  # fmt: skip
    runs = sum(len(r.sanitizer) for r in rows)
    values = {
        "name": record["name"], "date": record["date"], "texts": len(rows),
        "planted": _count(rows, lambda r: r.text.group == "planted"),
        "mutants": _count(rows, lambda r: r.text.group == "mutant"),
        "faults": _count(rows, lambda r: r.text.fault), "kernels": len(corpus.kernels()),
        "harmless": _count(rows, lambda r: not r.text.fault and r.text.group != "correct"),
        "ran": _count(rows, lambda r: bool(r.device)), "runs": runs,
        "bad": len(bad), "bad_found": _count(bad, lambda r: not r.clean),
        "low": f"{100 * wilson(_count(bad, lambda r: not r.clean), len(bad))[0]:.1f}",
        "right": len(right), "clean": _count(right, lambda r: r.clean), "stricter": len(stricter),
        "alarms": len(alarms), "sound": len(harmless),
        "unaided": _count(bad, lambda r: r.unaided),
        "aided": _count(bad, lambda r: not r.unaided and not r.clean),
        "hopper": len(engine), "hopper_errors": _count(engine, lambda r: bool(r.errors)),
        "high": f"{100 * wilson(len(alarms), len(harmless))[1]:.1f}",
        "seen": _count(stricter, lambda r: bool(r.errors)),
        "unseen": _count(stricter, lambda r: bool(r.sanitizer) and not r.errors),
        "untested": _count(stricter, lambda r: not r.sanitizer),
        "agreement": _agreement(rows), "right_table": _right(rows), "classes": _classes(rows),
        "kernel_table": _kernels(rows), "operators": _operators(rows), "errors": _errors(rows),
        "bits": bits, "sanitizer": _sanitizer(rows), "stricter_table": _stricter(stricter),
        "other_bits": _bullets(other, lambda r: notes()[r.name]["bits"], "None."),
        "missed": _bullets(missed, lambda r: r.why, "None."),
        "alarm_list": _bullets(alarms, lambda r: r.why, "None."),
        "arguable": _bullets(noted, lambda r: notes()[r.name]["arguable"], "None."),
        "silent": _bullets([r for r in rows if r.text.fault and r.clean], lambda r: r.why, "None."),
        "not_run": _bullets([r for r in rows if not r.device], lambda r: r.why, "None."),
        "refused": _bullets(
            [r for r in rows if r.outcome == "not compiled"],
            lambda r: f"{r.device['said'].split(': ')[-1]}. The emulator: {', '.join(r.verdict)}.",
            "None.",
        ),
        "tool_alarms": _bullets(
            [r for r in rows if r.text.group == "correct" and r.errors],
            lambda r: notes()[r.name]["sanitizer"], "None.",
        ),
    }  # fmt: skip
    return WORDS.read_text(encoding="utf-8").format_map(values)


def rows(record: dict[str, Any]) -> str:
    """One row for each text."""
    parts = [
        "# Fidelity, text by text\n\nWritten by `python docs/fidelity.py table`; what it says stands in "
        "[fidelity.md](fidelity.md). A text that is right is right in all 20 launches.\n"
    ]
    found = collect(record)
    for kernel in corpus.kernels():
        some = [r for r in found if r.text.kernel.name == kernel]
        body = [
            [r.name.partition(": ")[2] or "as it is", r.text.group, r.said, ", ".join(r.verdict) or "clean",
             r.sanitized if r.sanitizer else ""]
            for r in some
        ]  # fmt: skip
        head = ["text", "group", "device", "emulator", "sanitizer"]
        parts.append(f"\n## {kernel}\n\n{_grid(head, body, left=5)}\n")
    return "".join(parts)
