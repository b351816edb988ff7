"""``python -m tilegen``."""

from __future__ import annotations

from tilegen.cli import main

if __name__ == "__main__":
    main()
