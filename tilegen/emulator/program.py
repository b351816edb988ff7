"""A kernel text as a program of this machine: driver round the text, compiled and linked."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tilegen.emulator import scopes, store, toolchain, vocabulary
from tilegen.emulator.findings import Finding
from tilegen.emulator.vocabulary import Vocabulary
from tilegen.errors import CompileError, LaunchError

_DYNAMIC_NAME = re.compile(r"\bextern\b[^;{}()]*(?:\([^)]*\)[^;{}()]*)*?\b(\w+)\s*\[\s*\]\s*;")
_ALIGNMENT = re.compile(r"\b(?:__align__|alignas)\s*\(\s*(\d+)\s*\)")
_OPENED = re.compile(r"^(kernel\.\w+:\d+:\d+): note: to match this", re.MULTILINE)

# That a CompileError's log tells.
MOST_ERRORS = 8


@dataclass
class Program:
    """A compiled kernel text.

    Attributes
    ----------
    text : str
    entries : tuple of str
        Kernels that can be launched; an instance of a template with its arguments.
    language : Vocabulary
    findings : tuple of Finding
        What reading the inline assembly found.
    seconds : float
        What compiling took; 0 for what the cache held.
    """

    text: str
    entries: tuple[str, ...]
    language: Vocabulary
    findings: tuple[Finding, ...] = ()
    seconds: float = 0.0
    defines: tuple[str, ...] = ()
    _translated: str = field(default="", repr=False)
    _built: dict[str, Path] = field(default_factory=dict, repr=False)

    def executables(self, modes: Sequence[str]) -> dict[str, Path]:
        """The program in modes of ``toolchain`` (``"plain"``, ``"races"``), built side by side."""
        missing = [
            mode
            for mode in modes
            if mode not in self._built or not store.is_sound(self._built[mode])
        ]
        start = time.perf_counter()
        if missing:
            compiler = toolchain.host_compiler()
            objects = toolchain.runtime_objects(compiler, *self._dynamic_memory())
            with ThreadPoolExecutor(len(missing)) as pool:
                made = pool.map(lambda mode: self._build(compiler, objects, mode), missing)
                self._built.update(zip(missing, made, strict=True))
            self.seconds += time.perf_counter() - start
        return {mode: self._built[mode] for mode in modes}

    def _driver(self) -> str:
        # The text keeps its lines; what comes behind it is a file of its own to the compiler.
        called = [(e, scopes.qualified(self.text, e)) for e in self.entries]
        entries = "\n".join(f'    TG_ENTRY("{_quoted(e)}", {name}),' for e, name in called)
        ptx = '#include "tg_ptx.hpp"\n' if self._translated != self.text else ""
        return (
            f'#include "{self.language.header}"\n{ptx}'
            f'#line 1 "kernel{self.language.suffix}"\n{self._translated}\n'
            '#line 1 "driver"\n#include "tg_entry.hpp"\n'
            f"const tg::Entry tg_entries[] = {{\n{entries}\n}};\n"
            f"const uint32_t tg_entry_count = {len(self.entries)};\n"
        )

    def _build(self, compiler: toolchain.HostCompiler, objects: Sequence[Path], mode: str) -> Path:
        folders = (toolchain.RUNTIME, toolchain.PTX, *self.language.include)
        flags = [
            *compiler.compile_flags, "-w", "-g1", "-gdwarf-4", "-fwrapv",
            "-ffp-contract=fast", "-ftrivial-auto-var-init=pattern",
            *(f"-D{define}" for define in self.defines),
            *(f"-I{folder}" for folder in folders),
            *compiler.mode_flags(mode),
        ]  # fmt: skip
        driver = self._driver()
        headers = [
            f.read_text(encoding="utf-8")
            for folder in self.language.include
            for f in sorted(folder.glob("*"))
            if f.is_file()
        ]
        parts = (
            "emulated", compiler.identity, toolchain.runtime_digest(), driver, *headers, *flags
        )  # fmt: skip
        kernel = f"the {self.language.name} text"

        def build(path: Path) -> None:
            with tempfile.TemporaryDirectory(prefix="tilegen-") as folder:
                source, built = Path(folder) / "driver.cpp", Path(folder) / "kernel.o"
                source.write_text(driver, encoding="utf-8")
                toolchain.call(compiler, [*flags, "-c", str(source), "-o", str(built)], kernel)
                named = []
                for i, part in enumerate(objects):
                    # Zig goes by the ending of a name, which the cache's files do not have.
                    named.append(Path(folder) / f"runtime{i}.o")
                    named[-1].symlink_to(part)
                link = [*map(str, [named[0], built, *named[1:]]), *compiler.link_flags]
                toolchain.call(compiler, [*link, "-o", str(path)], kernel)

        try:
            return store.keep(parts, build)
        except CompileError as error:
            self._check_entries(error)
            raise self._of_the_text(error) from None

    def _of_the_text(self, error: CompileError) -> CompileError:
        """The same with the text's own errors alone: those behind it only follow from them."""
        told = [line for line in error.log.splitlines() if "error:" in line]
        own = [line for line in told if line.startswith(f"kernel{self.language.suffix}:")]
        # A brace that is never closed shows only behind the text.
        opened = dict.fromkeys(_OPENED.findall(error.log))
        own = own or [f"{place}: error: what opens here is not closed" for place in opened] or told
        if not own:
            return error
        log = own[:MOST_ERRORS]
        if len(own) > MOST_ERRORS:
            log[-1] = f"and {len(own) - MOST_ERRORS + 1} more errors"
        return CompileError(
            f"the {self.language.name} text does not compile for the emulator: {own[0]}",
            compiler=error.compiler,
            flags=error.flags,
            log="\n".join(log),
        )

    def _check_entries(self, error: CompileError) -> None:
        """Say it plainly where what does not compile is the call and not the text."""
        first = next((line for line in error.log.splitlines() if "error:" in line), "")
        if not first.startswith("driver:"):
            return
        found = scopes.kernels(self.text).items()
        named = [
            f"{space}::{name}" if space else name for name, spaces in found for space in spaces
        ]
        kernels = ", ".join(named) or "none"
        raise LaunchError(
            f"{' or '.join(map(repr, self.entries))} is no kernel that can be called by name alone; "
            f"kernels of the text: {kernels}"
        ) from error

    def _dynamic_memory(self) -> tuple[list[str], int]:
        """Names and alignment of the dynamic shared memory: `extern __shared__ __align__(n) T name[];`."""
        shown, found = scopes.bare(self.text), _dynamic_arrays(self.text)
        asked = [int(n) for m in found for n in _ALIGNMENT.findall(m.group(0))]
        # The window itself begins at a multiple of 1024.
        align = max((n for n in asked if n <= 1024), default=16)
        names = {scopes.linked(scopes.namespace_at(shown, m.start()), m[1]) for m in found}
        return sorted(names), max(align, 16)


def dynamic_memory_line(text: str) -> int:
    """The line of a text that declares dynamic shared memory, from 1; 0: none does."""
    found = _dynamic_arrays(text)
    return text.count("\n", 0, found[0].start()) + 1 if found else 0


def _dynamic_arrays(text: str) -> list[re.Match[str]]:
    """Declarations of dynamic shared memory, at their places in the text."""
    return [m for m in _DYNAMIC_NAME.finditer(scopes.bare(text)) if "__shared__" in m[0]]


def _quoted(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"')


def compile(
    text: str,
    language: str | Vocabulary = "cuda",
    entries: Sequence[str] | str = (),
    defines: Sequence[str] = (),
) -> Program:
    """Make a kernel text ready to run; the host compiler is called when it first runs.

    Parameters
    ----------
    text : str
        Kernel source, as it would be given to the device's compiler.
    language : str or Vocabulary
    entries : str or sequence of str
        Kernels to launch; for a template, the instance: ``"gemm<float, 8>"``.
    defines : sequence of str
        Macros as ``NAME=VALUE``.

    Raises
    ------
    BackendError
        If the language is not known here.
    CompileError
        If inline assembly stands in the text and nothing here can read it.
    """
    known = vocabulary.find(language)
    names = (entries,) if isinstance(entries, str) else tuple(entries)
    if not names:
        raise LaunchError("no entry is named: which kernel of the text is to run?")
    translated, findings = text, tuple[Finding, ...]()
    if known.inline_ptx and re.search(r"\b(asm|__asm__|__asm)\b", text):
        translated, findings = _translate(text)
    return Program(text, names, known, findings, 0.0, tuple(defines), translated)


def _translate(text: str) -> tuple[str, tuple[Finding, ...]]:
    try:
        ptx = import_module("tilegen.emulator.ptx")
    except ModuleNotFoundError:
        raise CompileError("the text holds inline PTX, and this build cannot read it") from None
    result = ptx.translate(text)
    return result.text, tuple(Finding(f.kind, f.message, f.line) for f in result.findings)
