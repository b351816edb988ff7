"""A report as text: one row per case and variant, the classes, the worst case, what was left out."""

from __future__ import annotations

from io import StringIO
from typing import Any

from tilegen.bench.report import BenchReport, CaseResult, Measurement

WIDTH = 150


def text(report: BenchReport, width: int = WIDTH) -> str:
    """The whole report, plain, as ``tilegen bench`` prints it."""
    from rich.console import Console

    out = StringIO()
    console = Console(file=out, width=width, highlight=False, color_system=None)
    for line in head(report):
        console.print(line, markup=False)
    console.print(_case_table(report))
    if any(result.variants for result in report.results):
        console.print(_class_table(report))
    for line in tail(report):
        console.print(line, markup=False)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def head(report: BenchReport) -> list[str]:
    """Where, on which clock, against what, under which ceilings."""
    clock = {
        "wall": "wall clock around each call until it is done",
        "device": "the device's own clock over queued launches",
    }[report.clock]
    lines = [
        f"{report.device}, {report.backend} {report.arch}: {clock}; {report.buffers} buffers; "
        f"seed {report.seed}"
    ]
    for name, about in report.peers.items():
        said = about if isinstance(about, str) else ", ".join(f"{k} {v}" for k, v in about.items())
        lines.append(
            f"peer     {name}: {said}" if not isinstance(about, str) else f"peer     {said}"
        )
    for name, ceiling in report.ceilings.items():
        unit = f"{ceiling['rate'] / 1e9:.1f} GB/s" if name == "bytes" else _rate(ceiling["rate"])
        lines.append(f"ceiling  {name}: {unit} ({ceiling['how']})")
    known = {about for about in report.peers.values() if isinstance(about, str)}
    return lines + [f"note     {note}" for note in report.notes if note not in known]


def tail(report: BenchReport) -> list[str]:
    """The worst case, and each case or runner that was left out, with its reason."""
    lines = []
    if (worst := report.worst()) and (best := worst.best):
        ratio, share = worst.peer_ratio(best), worst.floor_share(best)
        against = f"{ratio:.2f} of the fastest peer" if ratio is not None else ""
        floor = f"{share:.2f} of the floor's speed" if share is not None else ""
        said = ", ".join(x for x in (against, floor) if x) or "no peer and no floor"
        lines.append(f"worst    {worst.case.name} ({worst.kind}): {said}")
    reasons: dict[str, list[str]] = {}
    for result in report.results:
        for name, why in result.refused.items():
            who = "" if name == "case" else f"{name}: "
            reasons.setdefault(f"{who}{why}", []).append(result.case.name)
    lines += [f"not run  {', '.join(names)}: {why}" for why, names in reasons.items()]
    starved = [
        f"{w.name} on {r.case.name} in {w.starved} of {r.rounds} rounds"
        for r in report.results
        for w in (*r.variants, *r.peers)
        if w.starved
    ]
    if starved:
        lines.append(f"starved  the device may have waited for the host: {', '.join(starved)}")
    warm = [r.case.name for r in report.results if r.variants and not r.cold]
    if warm and report.buffers == "cold":
        lines.append(f"in cache {', '.join(warm)}: too small for {warm_reason(report)}")
    return [*lines, f"{report.seconds:.0f} s"]


def warm_reason(report: BenchReport) -> str:
    """How many sets there were at most, where even these fit in the cache."""
    most = max(r.sets for r in report.results)
    return f"{most} sets of operands to fill the last-level cache"


def _case_table(report: BenchReport) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    peers = list(dict.fromkeys(p.name for r in report.results for p in r.peers))
    several = len({v.name for r in report.results for v in r.variants}) > 1
    for name in ("case", "class", *(["variant"] if several else [])):
        table.add_column(name, no_wrap=name != "variant", overflow="fold")
    columns = ["rate", "p10-p90", "time", "of floor", *(f"/ {p}" for p in peers), "kernel", "host"]
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for result in report.results:
        for variant in sorted(result.variants, key=lambda v: v.time.median):
            cells = [result.case.name, result.kind, *([variant.name] if several else [])]
            table.add_row(*cells, *_numbers(result, variant, peers))
    return table


def _numbers(result: CaseResult, who: Measurement, peers: list[str]) -> list[str]:
    share, taken = result.floor_share(who), who.time
    bound = f"{share:.2f} {result.floor.bound}" if result.floor and share is not None else "-"
    by_name = {peer.name: peer for peer in result.peers}
    ratios = []
    for name in peers:
        if name not in by_name:
            ratios.append("-")
            continue
        peer = by_name[name].time.median
        paired = result.paired(who, by_name[name])
        ratios.append(f"{peer / taken.median:.2f} ({paired.p10:.2f}-{paired.p90:.2f})")
    events = sorted(who.event_seconds)
    kernel = _time(events[len(events) // 2]) if events else "-"
    host = _time(who.call_seconds) if who.call_seconds is not None else "-"
    spread = (
        f"{100 * (taken.p10 / taken.median - 1):+.0f}..{100 * (taken.p90 / taken.median - 1):+.0f}%"
    )
    return [_rate(result.rate(who)), spread, _time(taken.median), bound, *ratios, kernel, host]


def _class_table(report: BenchReport) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False)
    for name in ("class", "variant", "against"):
        table.add_column(name)
    for name in ("cases", "geometric mean", "worst"):
        table.add_column(name, justify="right")
    table.add_column("worst case")
    words = {"peer": "the fastest peer", "floor": "the floor"}
    for c in report.classes():
        table.add_row(
            c.kind, c.variant, words[c.against], str(c.count),
            f"{c.mean:.2f}", f"{c.worst:.2f}", c.worst_case,
        )  # fmt: skip
    return table


def _rate(rate: float) -> str:
    return f"{rate / 1e12:.2f} TFLOP/s" if rate >= 1e12 else f"{rate / 1e9:.1f} GFLOP/s"


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"
