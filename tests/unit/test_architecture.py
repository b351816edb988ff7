"""What the tree promises: imports run one way, the core knows no backend, importing does no work."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilegen import registry

ROOT = Path(__file__).parents[2]
CORE = ROOT / "tilegen"
# The order of the flow: a module may import what stands before it. What a name stands for is in
# section 2 of the design; `TYPE_CHECKING` imports are names only and may point either way.
ORDER = [
    "interrupt", "errors", "processors", "files", "dtypes", "layout", "hardware", "spec_faults",
    "spec", "dataflow", "entries", "plan", "rules", "proposals", "backend", "tensors", "host_arrays",
    "registry", "tiling", "roles", "outer_product", "staging", "bounds", "lower", "render",
    "launch_header",
    "arguments", "launch", "recall", "kernel", "build", "emulator", "testing", "verify", "mutation",
    "report", "draw", "choose", "sweep", "checklist", "bench", "__init__", "cli", "__main__",
]  # fmt: skip


def modules() -> dict[str, list[Path]]:
    """Top-level modules of the core by name; a package counts as one."""
    out: dict[str, list[Path]] = {}
    for path in sorted(CORE.rglob("*.py")):
        out.setdefault(path.relative_to(CORE).parts[0].removesuffix(".py"), []).append(path)
    return out


def imported(path: Path, *, names_only: bool = False) -> set[str]:
    """Absolute names of the modules that a file imports, inside functions too.

    ``names_only`` adds those under ``if TYPE_CHECKING``.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.If)
            and "TYPE_CHECKING" in ast.unparse(node.test)
            and not names_only
        ):
            skipped.update(inner for part in node.body for inner in ast.walk(part))
    package = path.relative_to(ROOT).parts[:-1]
    out: set[str] = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            out.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module) if part)
            out.add(name)
            out.update(f"{name}.{alias.name}" for alias in node.names if name == "tilegen")
    return out


def late(path: Path) -> set[str]:
    """Modules of tilegen that the file imports inside a function."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (
        n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    inner = (n for f in functions for n in ast.walk(f) if isinstance(n, ast.ImportFrom))
    return {str(n.module) for n in inner if str(n.module).startswith("tilegen")}


def test_every_module_has_its_place_in_the_order() -> None:
    assert set(modules()) <= set(ORDER)


@pytest.mark.parametrize("name", modules())
def test_modules_import_leftwards_only(name: str) -> None:
    allowed = set(ORDER[: ORDER.index(name)])
    for path in modules()[name]:
        found = {x.split(".")[1] for x in imported(path) - late(path) if x.startswith("tilegen.")}
        known = {x for x in found if x in modules()} - {name}
        assert known <= allowed, f"{path.name} imports {sorted(known - allowed)} to its right"


def test_the_core_imports_no_backend() -> None:
    folders = [p.name for p in (ROOT / "backends").iterdir() if (p / "__init__.py").exists()]
    backends = {*folders, "tilegen_plain_c", "pyopencl", "cupy", "cuda"}
    assert "tilegen_opencl" in backends
    for path in CORE.rglob("*.py"):
        roots = {name.split(".")[0] for name in imported(path, names_only=True)}
        assert not roots & backends, f"{path.name} imports {roots & backends}"


def test_backends_import_no_other_backend() -> None:
    folders = {p.name for p in (ROOT / "backends").iterdir() if (p / "__init__.py").exists()}
    for folder in folders:
        for path in (ROOT / "backends" / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            others = {other for other in folders - {folder} if other in text}
            assert not others, f"{path} names {others}"


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


def test_importing_tilegen_imports_no_backend_driver_or_test_library() -> None:
    loaded = set(
        json.loads(fresh("import json, sys, tilegen; print(json.dumps(list(sys.modules)))"))
    )
    roots = {name.split(".")[0] for name in loaded}
    unwanted = {"pyopencl", "hypothesis", "cupy", "cuda", "matplotlib", "jinja2", "typer", "rich"}
    assert not roots & unwanted
    assert not {name for name in roots if name.startswith("tilegen_")}


def test_importing_tilegen_touches_no_disk_beyond_imports() -> None:
    # An audit hook sees every file that Python opens, and folders and processes that it makes.
    code = """
import json, sys
seen = []
def hook(event, args):
    writes = event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+")
    makes = event in ("os.mkdir", "os.rename", "os.remove", "subprocess.Popen", "tempfile.mkstemp",
                      "tempfile.mkdtemp", "socket.connect", "ctypes.dlopen")
    reads = event == "open" and not str(args[0]).endswith((".py", ".pyc"))
    if (writes and ".pyc" not in str(args[0])) or makes or reads:
        seen.append((event, str(args[0])))
import pydantic, numpy, ml_dtypes, importlib.metadata, pathlib, tempfile
class First(pydantic.BaseModel):  # the first model makes pydantic look for plug-ins of its own
    x: int = 0
sys.addaudithook(hook)
import tilegen
print(json.dumps(seen))
"""
    # Metadata of installed plug-ins is read when asked for, not before.
    assert json.loads(fresh(code)) == []


def test_names_imports_no_backend() -> None:
    code = """
import sys
from tilegen import registry
names = registry.names()
print(",".join(names), any(name.startswith("tilegen_") for name in sys.modules))
"""
    names, loaded = fresh(code).split()
    assert loaded == "False"
    assert set(names.split(",")) <= set(registry.names())
