"""What all tests share: the option that rewrites golden texts, and a cache of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden" / "texts"


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
