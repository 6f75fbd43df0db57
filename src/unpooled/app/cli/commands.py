"""The classes behind all commands: what their help shows, and how their errors are printed."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from unpooled.app.lasting_process import error_line
from unpooled.errors import EXTRAS, UnpooledError, install_hint
from unpooled.options.declaration import MORE_HOW, MORE_PROTECT, READING
from unpooled.storage.file_locks import require_linux

_VALUES = {"int": "N", "float": "NUMBER", "Path": "PATH"}  # all others are TEXT
_ADVANCED = (MORE_HOW, MORE_PROTECT, READING)  # the panels that WithAdvancedOptions leaves out


class _NamedValues:
    """A command or group whose help names values by words (FILE, N, TEXT), not by types of Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for one in parameters:
            if not isinstance(one, TyperOption):
                one.metavar = one.metavar or _argument(one)
                one.display_type_rich = lambda ctx: None  # the name tells the type
            elif one.is_flag:
                one.metavar = ""
            elif one.metavar is None:
                kind = one.bare_type().removeprefix("list[").removesuffix("]")
                one.metavar = _VALUES.get(kind, "TEXT")
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.help: str | None = re.sub(r"(?<=\S)\n(?=\S)", " ", self.help or "")  # lines of a paragraph
        super().format_help(ctx, formatter)  # type: ignore[misc]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        # typer writes {FILE...}... for FILE... and [FILE...]... for [FILE...]
        return [re.sub(r"\{|\}|(?<=\.\.\.[]}])\.\.\.", "", one) for one in pieces]


def _argument(parameter: Any) -> str:
    """Return the word for an argument: FILE... for several files, FOLDER for one folder."""
    word: str = parameter.name.replace("_", "-").upper()
    return word if parameter.nargs == 1 else f"{word.removesuffix('S')}..."


class Command(_NamedValues, TyperCommand):
    """A command."""


class OnLinux(Command):
    """A command that needs Linux; on other systems it prints one line that names the command."""

    def invoke(self, ctx: Any) -> Any:
        require_linux(f"unpooled {ctx.command_path.partition(' ')[2]}")
        return super().invoke(ctx)


class WithAdvancedOptions(Command):
    """A command with many options. ``--help`` lists the common ones and ``--help-all`` lists all."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._show_advanced(False)

    def _show_advanced(self, shown: bool) -> None:
        for one in self.params:
            if isinstance(one, TyperOption) and one.rich_help_panel in _ADVANCED:
                one.hidden = not shown

    def print_all_options(self, ctx: Any) -> None:
        self._show_advanced(True)
        typer.echo(ctx.get_help())
        self._show_advanced(False)


def _help_all(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        assert isinstance(ctx.command, WithAdvancedOptions)
        ctx.command.print_all_options(ctx)
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", callback=_help_all, is_eager=True, expose_value=False, help="Show all options and exit."
    ),
]


class Group(_NamedValues, TyperGroup):
    """A group of commands that prints errors of unpooled and of the file system as one line (exit code 1)."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise
        except (UnpooledError, OSError) as error:
            text = error_line(error)
        except ModuleNotFoundError as error:
            module = (error.name or "").partition(".")[0]
            if module not in EXTRAS:
                raise
            name = ctx.invoked_subcommand
            text = f"{name} needs {module}, which is not installed. {install_hint(EXTRAS[module])}"
        typer.echo(f"unpooled: {text}", err=True)
        raise typer.Exit(1)


def in_order(*names: str) -> type[Group]:
    """Return a class of groups that lists its commands in this order; ValueError for a command it lacks."""

    class InOrder(Group):
        def list_commands(self, ctx: Any) -> list[str]:
            return sorted(super().list_commands(ctx), key=names.index)

    return InOrder


class Commands(typer.Typer):
    """Commands that are of the class ``Command`` unless they name another."""

    def command(self, name: str | None = None, **named: Any) -> Callable[[Any], Any]:
        return super().command(name, **{"cls": Command} | named)
