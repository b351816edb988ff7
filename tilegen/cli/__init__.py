"""The command line: every command is one arrow of the flow; what goes wrong is one sentence.

Exit status: 0 fine, 1 a check or verification failed, 2 the request was wrong, 130 interrupted.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Annotated

import typer

from tilegen import interrupt
from tilegen.cli.benching import bench
from tilegen.cli.building import build, verify
from tilegen.cli.cache import cache_clear, cache_size, cache_where
from tilegen.cli.checking import check
from tilegen.cli.choosing import choose
from tilegen.cli.emulating import emulate
from tilegen.cli.explaining import diff, plan, schema, targets
from tilegen.cli.failures import (
    FINE,
    INTERRUPTED,
    PIPE_CLOSED,
    drop,
    drop_unless_flushed,
    explained,
    open_streams,
    say,
    tell,
    warned,
)
from tilegen.cli.mutating import mutate
from tilegen.cli.starting import init
from tilegen.cli.sweeping import sweep

app = typer.Typer(
    name="tilegen",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="One neutral tile description, lowered to readable, checked matrix-product kernels.",
)
cache_app = typer.Typer(rich_markup_mode=None, help="The disk cache of compiled kernels.")
app.add_typer(cache_app, name="cache")

COMMANDS = (
    init, choose, build, plan, diff, sweep, verify, check, bench, mutate, emulate, targets, schema,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)
cache_app.command("path")(cache_where)
cache_app.command("size")(cache_size)
cache_app.command("clear")(cache_clear)


def main() -> None:
    """The console command ``tilegen``."""
    open_streams()
    interrupt.ready()
    status = run(sys.argv[1:])
    with suppress(KeyboardInterrupt):
        for stream in (sys.stdout, sys.stderr):
            drop_unless_flushed(stream)
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit status; errors are printed, never raised."""
    as_json = "--json" in arguments
    try:
        if list(arguments) in (["--version"], ["--version", "--json"], ["--json", "--version"]):
            say({"version": version("tilegen")} if as_json else f"tilegen {version('tilegen')}")
            status = FINE
        else:
            status = _invoke(list(arguments))
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, typer.Abort):
        with suppress(OSError):
            print(interrupt.SENTENCE, file=sys.stderr)
        return INTERRUPTED
    except typer.Exit as stop:
        return int(stop.exit_code)
    except BrokenPipeError:
        # The reader has gone (`tilegen plan ... | head`): nobody is left to tell.
        drop(sys.stdout)
        return PIPE_CLOSED
    except Exception as error:
        told = explained(error)
        if told is None:
            raise
        return tell(told, as_json)


def _invoke(arguments: list[str]) -> int:
    # Not app(...): it answers Ctrl-C by itself, in other words from version to version.
    command = typer.main.get_command(app)
    with warnings.catch_warnings(), command.make_context("tilegen", arguments) as context:
        warnings.showwarning = warned(warnings.showwarning)
        status = command.invoke(context)
    return status if isinstance(status, int) else FINE


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        say(f"tilegen {version('tilegen')}")
        raise typer.Exit
    _help_if_bare(context)


@cache_app.callback(invoke_without_command=True)
def _cache_top(context: typer.Context) -> None:
    _help_if_bare(context)


def _help_if_bare(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        say(context.get_help())
