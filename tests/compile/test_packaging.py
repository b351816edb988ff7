"""The wheel, built from the sdist, works where the checkout is not: installed, and unopened."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "tilegen": ROOT / "tilegen",
    "tilegen_templates": ROOT / "templates" / "tilegen_templates",
    **{p.parent.name: p.parent for p in sorted((ROOT / "backends").glob("*/__init__.py"))},
}
# Imports every module of the packages, and says where they came from.
IMPORT_ALL = f"""
import importlib, pkgutil
for name in {list(PACKAGES)}:
    package = importlib.import_module(name)
    print(package.__file__)
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
EMIT = """
import tilegen as tg
spec = tg.TileSpec(block=(32, 32, 16), warp=(16, 32), epilogue=[{"op": "bias"}, {"op": "gelu"}])
source = tg.emit(tg.lower(spec, "opencl", "cpu"))
print(tg.__file__)
print(source.text)
"""


@dataclass(frozen=True)
class Built:
    """What the build left, and an environment that holds the wheel and this one's dependencies."""

    sdist: Path
    wheel: Path
    python: Path
    elsewhere: Path

    def run(self, *command: str, path: Path | None = None) -> str:
        """What a command prints, started where the checkout is not found."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COVERAGE"))}
        env["TILEGEN_CACHE"] = str(self.elsewhere / "cache")
        if path is not None:
            env["PYTHONPATH"] = str(path)
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self.elsewhere, env=env, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout


def _build(kind: str, source: Path, out: Path) -> Path:
    # Without isolation: the [test] extra brings hatchling, and nothing is downloaded.
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "-o", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = [*out.glob("*.tar.gz"), *out.glob("*.whl")]
    return made


def _unpack(archive: Path, folder: Path) -> Path:
    import tarfile

    with tarfile.open(archive) as tar:
        # Python 3.11.3 and earlier know no filter, and the archive is our own.
        safe: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        tar.extractall(folder, **safe)
    [top] = folder.iterdir()
    return top


def _dependencies(folder: Path) -> None:
    """A folder of links to this environment's packages, without tilegen's own.

    A ``.pth`` to the whole of site-packages would bring the editable checkout along.
    """
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for item in Path(place).iterdir():
            ours = item.name.startswith(("tilegen", "_tilegen", "_editable_impl_tilegen"))
            if not ours and item.suffix != ".pth" and not (folder / item.name).exists():
                (folder / item.name).symlink_to(item)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    root = tmp_path_factory.mktemp("packaging")
    for name in ("sdist", "wheel", "tree", "dependencies", "elsewhere"):
        (root / name).mkdir()
    sdist = _build("--sdist", ROOT, root / "sdist")
    wheel = _build("--wheel", _unpack(sdist, root / "tree"), root / "wheel")
    venv.create(root / "venv", with_pip=True)
    python = root / "venv" / "bin" / "python"
    _dependencies(root / "dependencies")
    out = Built(sdist, wheel, python, root / "elsewhere")
    out.run(str(python), "-m", "pip", "install", "-q", "--no-deps", "--no-index", str(wheel))
    purelib = out.run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    Path(purelib.strip(), "dependencies.pth").write_text(f"{root / 'dependencies'}\n")
    return out


def test_the_wheel_holds_every_module_template_and_marker(built: Built) -> None:
    held = set(zipfile.ZipFile(built.wheel).namelist())
    for name, folder in PACKAGES.items():
        wanted = {
            f"{name}/{path.relative_to(folder).as_posix()}"
            for path in folder.rglob("*")
            if path.suffix in (".py", ".j2", ".h") or path.name == "py.typed"
        }
        assert f"{name}/py.typed" in wanted, f"{name} has no py.typed"
        # A file that git does not know yet may be someone's sketch; hatchling ships it all the same.
        assert wanted <= held, sorted(wanted - held)
    tops = {name.split("/")[0] for name in held}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert any(name.endswith("licenses/LICENSE") for name in held)


def test_the_sdist_holds_what_its_tests_need(built: Built, tmp_path: Path) -> None:
    tree = _unpack(built.sdist, tmp_path)
    for name in ("README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml", "tests/conftest.py"):
        assert (tree / name).read_bytes() == (ROOT / name).read_bytes()
    assert (tree / "examples" / "03_backend_plain_c" / "pyproject.toml").exists()
    assert (tree / "tests" / "data" / "layouts.json").exists()


def test_every_module_imports_from_the_installed_wheel(built: Built) -> None:
    places = built.run(str(built.python), "-c", IMPORT_ALL).split()
    assert len(places) == len(PACKAGES)
    for place in places:
        assert place.startswith(str(built.python.parents[1])), place


def test_the_installed_command_plans_and_emits(built: Built) -> None:
    import tilegen as tg

    command = str(built.python.with_name("tilegen"))
    assert "0.1.0" in built.run(command, "--version")
    spec = built.elsewhere / "spec.toml"
    spec.write_text(tg.TileSpec(block=(32, 32, 16), warp=(16, 32)).to_toml())
    plan = built.run(command, "plan", str(spec), "--backend", "opencl", "--arch", "cpu")
    assert "gemm_wide" in plan
    assert "__kernel" in built.run(str(built.python), "-c", EMIT)


def test_an_unopened_wheel_emits_the_same_text(built: Built) -> None:
    dependencies = built.python.parents[2] / "dependencies"
    env_path = Path(f"{built.wheel}{os.pathsep}{dependencies}")
    code = built.run(sys.executable, "-S", "-c", EMIT, path=env_path)
    place, _, zipped = code.partition("\n")
    assert place.startswith(str(built.wheel))
    _, _, installed = built.run(str(built.python), "-c", EMIT).partition("\n")
    assert zipped == installed
