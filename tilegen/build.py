"""From text to a loaded kernel: the compiler behind a disk cache, and the folders that `build -o` writes."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tilegen import registry
from tilegen.backend import Backend, Device, Resources, Toolchain, runs
from tilegen.errors import BackendError, CompileError, LaunchError, SpecError, require
from tilegen.files import read_file, write_atomically, write_together
from tilegen.hardware import Arch
from tilegen.kernel import Kernel
from tilegen.lower import lower
from tilegen.plan import plain
from tilegen.render import KernelSource, emit
from tilegen.spec import TileSpec, read_json

MANIFEST = "manifest.json"
CACHE_VARIABLE = "TILEGEN_CACHE"
# No kernel comes near; what is larger is no kernel.
CACHE_LIMIT = 2**30


@dataclass(frozen=True)
class KernelBinary:
    """A compiled source.

    Attributes
    ----------
    source : KernelSource
    data : bytes
        What the driver loads.
    log : str
        What the compiler said.
    resources : mapping
        Entry name to what the compiler reported.
    toolchain : Toolchain
    flags : str
    cached : bool
        Whether it came from the disk cache.
    lineinfo : bool
        Whether it keeps the lines of the text, for profilers and checkers.
    """

    source: KernelSource
    data: bytes
    log: str
    resources: dict[str, Resources]
    toolchain: Toolchain
    flags: str = ""
    cached: bool = field(default=False, compare=False)
    lineinfo: bool = False


def cache_path() -> Path:
    """Where compiled kernels are kept: ``$TILEGEN_CACHE``, else the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tilegen", appauthor=False))


def _cached(key: str) -> Path:
    return cache_path() / f"{key}.bin"


def _cache_key(source: KernelSource, toolchain: Toolchain, flags: str) -> str:
    parts = (source.text, source.plan.arch.name, toolchain.name, toolchain.version, flags)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _read_cache(key: str, source: KernelSource, toolchain: Toolchain) -> KernelBinary | None:
    # One file: a line of JSON, then the binary. Whatever does not check out is built again.
    try:
        head, _, data = read_file(_cached(key), CACHE_LIMIT).partition(b"\n")
        meta = json.loads(head)
        if (meta["key"], meta["sha256"]) != (key, hashlib.sha256(data).hexdigest()):
            return None
        log, flags, told = meta["log"], meta["flags"], meta["resources"]
        if not (isinstance(log, str) and isinstance(flags, str) and isinstance(told, dict)):
            return None
        resources = {name: _resources(values) for name, values in told.items()}
        if resources.keys() != {entry.name for entry in source.entries}:
            return None
        return KernelBinary(source, data, log, resources, toolchain, flags, cached=True)
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        MemoryError,
    ):
        return None


def _resources(values: dict[str, Any]) -> Resources:
    found = Resources(**values)
    numbers = {**asdict(found), "extra": None, **found.extra}
    if not all(number is None or type(number) is int for number in numbers.values()):
        raise TypeError("resources are counted in whole numbers")
    return found


def _write_cache(key: str, binary: KernelBinary) -> None:
    head = {
        "key": key,
        "sha256": hashlib.sha256(binary.data).hexdigest(),
        "kernel": binary.source.name,
        "toolchain": str(binary.toolchain),
        "flags": binary.flags,
        "log": binary.log,
        "resources": {name: asdict(r) for name, r in binary.resources.items()},
    }
    # A cache that cannot be written (read-only home, full disk) costs time, not the kernel.
    with suppress(OSError):
        path = _cached(key)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(head).encode() + b"\n" + binary.data)


def find_compiled(source: KernelSource, device: Device | None = None) -> KernelBinary | None:
    """The binary of a source if the disk cache holds it; compiles nothing.

    Parameters
    ----------
    source : KernelSource
    device : Device, optional
        As for :func:`compile`.
    """
    toolchain = registry.get(source.plan.backend).toolchain(source.plan.arch, device)
    return _read_cache(_cache_key(source, toolchain, toolchain.flags), source, toolchain)


def compile(
    source: KernelSource,
    *,
    device: Device | None = None,
    cache: bool = True,
    lineinfo: bool = False,
) -> KernelBinary:
    """Compile a source, or take the binary from the disk cache.

    Parameters
    ----------
    source : KernelSource
    device : Device, optional
        Where compilers belong to devices (OpenCL): compile for this one.
    cache : bool
        Whether the disk cache may be read and written.
    lineinfo : bool
        Keep the lines of the text in the binary, for profilers and compute-sanitizer.

    Raises
    ------
    CompileError
        If no compiler is there (the message says what brings one), it refuses the text, or it keeps
        no lines and is asked to.
    """
    require("compile", source, KernelSource)
    return _compile(source, device, read=cache, write=cache, lineinfo=lineinfo)


def _compile(
    source: KernelSource, device: Device | None, *, read: bool, write: bool, lineinfo: bool
) -> KernelBinary:
    backend = registry.get(source.plan.backend)
    toolchain = backend.toolchain(source.plan.arch, device)
    if toolchain.missing:
        raise CompileError(toolchain.missing)
    asked = toolchain
    if lineinfo:
        if not toolchain.lineinfo:
            raise CompileError(f"lineinfo: {toolchain} keeps no line numbers")
        asked = replace(toolchain, flags=f"{toolchain.flags} {toolchain.lineinfo}")
    key = _cache_key(source, toolchain, asked.flags)
    if read and (found := _read_cache(key, source, toolchain)):
        return replace(found, lineinfo=lineinfo)
    # Whether a binary is of the compiler that is here does not depend on what it was asked for.
    binary = replace(backend.compile(source, asked), toolchain=toolchain, lineinfo=lineinfo)
    if write:
        _write_cache(key, binary)
    return binary


def emulator(backend: Backend, arch: Arch | None) -> Device | None:
    """The emulator of an arch, of the backend's default one if none is given; ``None`` without one."""
    wanted = arch or next(iter(backend.archs.values()))
    found = (d for d in backend.checkers() if d.rung == "emulator" and runs(d, wanted))
    return next(found, None)


def find_device(backend: Backend, arch: Arch | None, device: str | Device | None) -> Device:
    """The device that a selector or part of a name means; left out, the first that runs the arch.

    Where none does, the emulator stands in.

    A name is the device's, or that of its driver where no device's fits.

    Raises
    ------
    BackendError
        If none fits, or more than one does; the message lists them.
    """
    if device is not None and not isinstance(device, str):
        if not hasattr(device, "selector"):
            raise BackendError(
                f"device: a selector, part of a name, or a Device is needed, not {type(device).__name__}"
            )
        return device
    devices = list(backend.devices())
    listed = ", ".join(f"{d.selector} ({d.name})" for d in devices) or "none"
    if device is None:
        fitting = [d for d in devices if arch is None or runs(d, arch)]
        if fitting:
            return fitting[0]
        if stand_in := emulator(backend, arch):
            return stand_in
        wanted = f" for arch {arch.name}" if arch else ""
        hints = "; ".join(f"{m.what}: {m.command}" for m in backend.missing())
        raise BackendError(
            f"no {backend.name} device{wanted} was found (found: {listed})"
            + (f"; {hints}" if hints else "")
        )
    exact = [d for d in devices if d.selector in (device, f"{device}:0")]
    if exact:
        return exact[0]
    checkers = backend.checkers()
    asked = [d for d in checkers if d.selector == device.lower()]
    if asked:
        return next((d for d in asked if arch is not None and d.arch.name == arch.name), asked[0])
    text, _, index = device.rpartition(":")
    if not text or not (index.isascii() and index.isdigit()):
        text, index = device, ""
    matches = [d for d in devices if text.lower() in d.name.lower()]
    # Several runtimes name one processor alike; then the driver's name tells them apart.
    matches = matches or [d for d in devices if text.lower() in getattr(d, "driver", "").lower()]
    if index and int(index) < len(matches):
        return matches[int(index)]
    if len(matches) == 1 and not index:
        return matches[0]
    if len(matches) > 1:
        names = ", ".join(f"{d.selector} ({d.name})" for d in matches)
        raise BackendError(f"device {device!r} fits more than one: {names}; add ':0' or a selector")
    *first, last = dict.fromkeys(d.selector for d in checkers) or [""]
    others = f"{', '.join(first)} and {last}" if first else last
    raise BackendError(
        f"no {backend.name} device fits {device!r}; found: {listed}"
        + (f"; to check without one: {others}" if others else "")
    )


def load(
    what: KernelSource | KernelBinary | str | Path, device: str | Device | None = None
) -> Kernel:
    """Make a kernel ready to call.

    Parameters
    ----------
    what : KernelSource, KernelBinary or path
        A path is a folder that ``tilegen build -o`` wrote, or the manifest in it.
    device : str or Device, optional
        Left out: the first device that runs the arch.

    Raises
    ------
    SpecError
        If it is none of these, or the folder is not what a build wrote.
    BackendError
        If no device runs it.
    LaunchError
        If the device refuses it, built anew where it came from the disk cache.
    """
    require("load", what, KernelSource, KernelBinary, str, Path)
    if isinstance(what, (str, Path)):
        return _load_folder(Path(what), device)
    source = what.source if isinstance(what, KernelBinary) else what
    backend = registry.get(source.plan.backend)
    where = find_device(backend, source.plan.arch, device)
    if not runs(where, source.plan.arch):
        raise LaunchError(
            f"{source.name} is for arch {source.plan.arch.name} and {where.selector} ({where.name}) "
            f"runs {where.arch.name}"
        )
    binary = what if isinstance(what, KernelBinary) else compile(source, device=where)
    if binary.toolchain != backend.toolchain(source.plan.arch, where):
        # A device's own compiler may keep no lines, and the emulator tells them without.
        keeps = bool(backend.toolchain(source.plan.arch, where).lineinfo)
        asked = isinstance(what, KernelBinary) and what.lineinfo
        binary = compile(source, device=where, lineinfo=asked and keeps)
    try:
        loaded = where.load(binary)
    except LaunchError:
        if not binary.cached:
            raise
        # What is in the cache may be as damaged as it looks whole.
        again = binary.lineinfo
        binary = _compile(source, where, read=False, write=True, lineinfo=again)
        loaded = where.load(binary)
    return Kernel(binary, where, loaded)


def build(
    spec: TileSpec,
    backend: str,
    arch: str | Arch | None = None,
    device: str | Device | None = None,
) -> Kernel:
    """Spec to kernel: lower, emit, compile and load in one call."""
    require("build", spec, TileSpec)
    plugin = registry.get(backend)
    if device is not None or arch is None:
        target = arch if not isinstance(arch, str) else plugin.archs.get(arch)
        found = find_device(plugin, target, device)
        arch = found.arch if arch is None else arch
        device = found
    return load(emit(lower(spec, backend, arch)), device)


def manifest(source: KernelSource, binary: KernelBinary | None) -> dict[str, Any]:
    """What ``manifest.json`` holds."""
    plan = source.plan
    return {
        "schema": 1,
        "tilegen": version("tilegen"),
        "name": plan.name,
        "backend": plan.backend,
        "arch": plan.arch.name,
        "spec": plan.spec.model_dump(mode="json", exclude_defaults=True),
        "spec_sha256": plan.spec.digest,
        "source": {"file": plan.name + source.suffix, "sha256": source.digest},
        "template": {"name": plan.template, "sha256": source.template_digest},
        "binary": None
        if binary is None
        else {
            "file": plan.name + registry.get(plan.backend).binary_suffix,
            "sha256": hashlib.sha256(binary.data).hexdigest(),
            "compiler": {"name": binary.toolchain.name, "version": binary.toolchain.version},
            "flags": binary.flags,
            "resources": {name: asdict(r) for name, r in binary.resources.items()},
        },
        "entries": [plain(entry) for entry in plan.entries],
        "plan": plan.to_dict(),
    }


def save(
    source: KernelSource, binary: KernelBinary | None, directory: str | Path
) -> dict[str, Path]:
    """Write source, binary, launch header and manifest into a folder; the manifest comes last.

    Returns
    -------
    dict
        ``"source"``, ``"binary"``, ``"header"`` and ``"manifest"`` to the files written.

    Raises
    ------
    OSError
        If the folder cannot be made or written; files written before stay whole.
    """
    require("save", source, KernelSource)
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    backend, plan = registry.get(source.plan.backend), source.plan
    files = {
        "source": (plan.name + source.suffix, source.text.encode()),
        "header": (plan.name + ".h", backend.launch_header(source).encode()),
    }
    if binary is not None:
        files["binary"] = (plan.name + backend.binary_suffix, binary.data)
    text = json.dumps(manifest(source, binary), indent=2) + "\n"
    files["manifest"] = (MANIFEST, text.encode())
    write_together(folder, dict(files.values()))
    return {kind: folder / name for kind, (name, _) in files.items()}


def _load_folder(folder: Path, device: str | Device | None) -> Kernel:
    if folder.is_file():
        if folder.name != MANIFEST:
            raise SpecError(
                f"{folder}: it is a file; name the folder that a build wrote, or its {MANIFEST}"
            )
        folder = folder.parent
    path = folder / MANIFEST
    try:
        data = read_json(path.read_text(encoding="utf-8"))
        source_file = folder / str(data["source"]["file"])
        text = source_file.read_text(encoding="utf-8")
        spec, backend_name = TileSpec.from_dict(data["spec"]), str(data["backend"])
        schema, digest = data["schema"], data["source"]["sha256"]
        arch_name = str(data["arch"])
    except FileNotFoundError as error:
        raise SpecError(f"{error.filename}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise SpecError(f"{path}: not a manifest that tilegen wrote: {why}") from None
    if schema != 1:
        raise SpecError(f"{path}: schema {schema} is not one this version reads; it reads 1")
    if hashlib.sha256(text.encode()).hexdigest() != digest:
        raise SpecError(f"{source_file}: it was changed after the build; build it again")
    backend = registry.get(backend_name)
    if arch_name not in backend.archs:
        raise BackendError(f"{path}: {backend_name} has no arch {arch_name!r}")
    where = find_device(backend, backend.archs[arch_name], device)
    # The plan of the build may rest on a refined arch; the manifest keeps which features it had.
    for arch in (where.arch, backend.archs[arch_name]):
        source = emit(lower(spec, backend_name, arch))
        if source.text == text:
            return load(source, where)
    raise SpecError(
        f"{path}: this version of tilegen plans the spec differently for {where.name}; build it again"
    )
