"""What all tests share: the option that rewrites golden texts, and a cache of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

from tilegen import registry

GOLDEN = Path(__file__).parent / "golden" / "texts"
# The example of a third party's backend is enrolled in the contract tests as a user's would be; it
# needs a C compiler, and the tests that it skips without one say so.
EXAMPLE = Path(__file__).parents[1] / "examples" / "03_backend_plain_c"
sys.path.append(str(EXAMPLE))
registry.register(__import__("tilegen_plain_c").BACKEND)


# Tests never judge a time: a busy machine is not a fault.
settings.register_profile("tilegen", deadline=None, print_blob=True)
settings.load_profile("tilegen")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden/texts")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    # Tests must not pass because of what an earlier version left in the user's cache.
    os.environ["TILEGEN_CACHE"] = str(tmp_path_factory.getbasetemp().parent / "tilegen-cache")


@pytest.fixture
def golden(request: pytest.FixtureRequest):
    """Compare a text with tests/golden/texts/NAME, or rewrite it under --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if not path.exists():
            pytest.fail(f"{path.name} is missing: run pytest --update-golden and read the diff")
        assert text == path.read_text(), f"{name} changed; --update-golden rewrites it"

    return check


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run a command; its status and what it wrote."""
    import tilegen.cli as cli

    def call(*words: str) -> tuple[int, str, str]:
        status = cli.run([str(word) for word in words])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    return call
