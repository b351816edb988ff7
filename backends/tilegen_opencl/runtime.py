"""Finds OpenCL: hides the traps of the CPU runtime's wheel, keeps what is installed visible."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from tilegen.backend import Missing
from tilegen.errors import CompileError

VENDORS = "OCL_ICD_VENDORS"
NO_CACHE = "PYOPENCL_NO_CACHE"
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
INSTALL = "python -m pip install 'tilegen[cpu]'"


def wheel_libraries() -> list[Path]:
    """Driver libraries that pip installed into this environment.

    Intel's wheel writes a placeholder into its ``.icd`` file, so the library is looked up where the
    wheel puts it.
    """
    found = []
    for root in dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix))):
        found += [root / "lib" / name for name in ("libintelocl.so",)]
    package = find_spec("pocl_binary_distribution")
    if package is not None and package.origin:
        folder = Path(package.origin).parent
        found += sorted(folder.glob("**/libpocl.so*"))[:1]
    return [path for path in dict.fromkeys(found) if path.exists()]


def _vendors_folder() -> Path:
    """A private folder of ``.icd`` files: copies of the system's, and ours for the wheels."""
    folder = Path(tempfile.mkdtemp(prefix="tilegen-icd-"))
    if SYSTEM_VENDORS.is_dir():
        for icd in sorted(SYSTEM_VENDORS.glob("*.icd")):
            with suppress(OSError):
                shutil.copy(icd, folder / icd.name)
    for library in wheel_libraries():
        (folder / f"tilegen-{library.stem}.icd").write_text(f"{library}\n")
    return folder


def has_compiler_runtime() -> bool:
    """Whether intel-cmplr-lib-rt is there: its libraries lie beside the driver's."""
    return any(next(path.parent.glob("libsvml.so*"), None) for path in wheel_libraries())


@cache
def opencl() -> ModuleType | None:
    """pyopencl with every runtime of this machine visible, or ``None`` where it is not installed.

    A caller who has set ``OCL_ICD_VENDORS`` is left alone.
    """
    if find_spec("pyopencl") is None:
        return None
    ours = None
    if VENDORS not in os.environ and wheel_libraries():
        ours = _vendors_folder()
        os.environ[VENDORS] = str(ours)
    # pyopencl would keep a cache folder of its own, and fail where the home cannot be written.
    no_cache = os.environ.get(NO_CACHE)
    os.environ[NO_CACHE] = no_cache or "1"
    try:
        cl = import_module("pyopencl")
        with suppress(cl.Error):
            cl.get_platforms()  # the loader reads the folder once, now
    except ImportError:
        return None
    finally:
        if no_cache is None:  # read once, at import; child processes are none of our business
            os.environ.pop(NO_CACHE, None)
        if ours is not None:
            os.environ.pop(VENDORS, None)
            shutil.rmtree(ours, ignore_errors=True)
    return cl


@cache
def binding() -> Any:
    """pyopencl with its arrays; raises ``CompileError`` where it is not installed."""
    cl = opencl()
    if cl is None:
        raise CompileError("pyopencl is not installed: python -m pip install 'tilegen[cpu]'")
    import_module("pyopencl.array")
    return cl


def missing(found_any: bool) -> list[Missing]:
    """What would bring an OpenCL device here."""
    if find_spec("pyopencl") is None:
        return [Missing("pyopencl, the OpenCL binding, is not installed", INSTALL)]
    if found_any:
        return []
    if wheel_libraries() and has_compiler_runtime():
        return [
            Missing(
                "pyopencl was asked for platforms before tilegen could show it the CPU runtime",
                f"export {VENDORS}=DIR, a folder with an .icd file that holds the path "
                f"{wheel_libraries()[0]}",
            )
        ]
    if wheel_libraries():
        return [
            Missing(
                "the CPU runtime's library cannot be loaded (intel-cmplr-lib-rt may be missing)",
                "python -m pip install intel-cmplr-lib-rt",
            )
        ]
    return [Missing("no OpenCL runtime is installed", INSTALL)]
