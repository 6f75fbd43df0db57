"""Pages of reference for the commands: their help, with every option, from the program itself."""

from pathlib import Path
from typing import Any

from typer.main import get_command

from unpooled.app.cli import app
from website.reference import plain

PAGES = {  # the group of commands on each page, "" for those without one, and the title of the page
    "commands": ("", "Commands"),
    "site-commands": ("site", "Commands of a site"),
    "federation-commands": ("federation", "Commands of a coordinator"),
}


def commands_of(group: str) -> dict[str, Any]:
    """Return the commands of a group by the words that a user types."""
    program = get_command(app)
    own = program.commands[group].commands if group else program.commands
    names = {" ".join(["unpooled", *filter(None, [group]), name]): one for name, one in own.items()}
    return {name: one for name, one in names.items() if not hasattr(one, "commands")}


def write_commands(folder: Path) -> None:
    """Write a page for every group of commands."""
    for file, (group, title) in PAGES.items():
        text = [f"# {title}", "Made from the help of the program."]
        for name, command in commands_of(group).items():
            text.append(described(name, command))
        (folder / f"{file}.md").write_text("\n\n".join(text) + "\n", encoding="utf-8")


def described(name: str, command: Any) -> str:
    """One command: what it does, its example, and a table of its arguments and options."""
    blocks = command.help.split("\n\n")
    parts = [f"## {name}"]
    for block in blocks:
        parts.append(f"```sh\n{block}\n```" if block.startswith("unpooled ") else plain(block))
    rows = [f"| {_names(one)} | {plain(_help(one))} |" for one in command.params if one.name != "help"]
    return "\n\n".join([*parts, "\n".join(["| option | meaning |", "|---|---|", *rows])] if rows else parts)


def _names(parameter: Any) -> str:
    """The option as it is typed, or the argument in capitals."""
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`" + (" ..." if parameter.nargs == -1 else "")
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _help(parameter: Any) -> str:
    text = " ".join((parameter.help or "").split())
    default = parameter.default
    unset = default is None or default is False or default == "" or default == ()
    if parameter.param_type_name == "argument" or unset or "default" in text:
        return text
    return f"{text}{'' if text.endswith('.') else '.'} Default: `{default}`."
