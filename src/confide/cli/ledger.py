"""The commands `confide ledger` and `confide ledger move`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from confide.cli.places import MODEL, Ledger, Model
from confide.cli.terminal import OPERATOR, say
from confide.ledger import Ledger as Kept
from confide.pop.lives import look
from confide.pop.succession import before_of

__all__ = ["ledger"]


class _Shows(TyperGroup):
    """A folder in the place of a command: it is shown."""

    def parse_args(self, context: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["show", *args]
        return super().parse_args(context, args)


ledger = typer.Typer(
    cls=_Shows, no_args_is_help=True, rich_markup_mode="markdown",
    help="Say what a model has cost its people, or move its ledger. Example: `confide ledger state/spam2 --person ann`",
)  # fmt: skip


@ledger.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="STATE", help="The folder of a saved POP.")],
    person: Annotated[
        str | None, typer.Option(metavar="ID", help="Say it of this person alone. Behind `jwt`: jwt:ISSUER:NAME.")
    ] = None,
    ledger: Ledger = None,
    model: Model = MODEL,
) -> None:
    """Say what a model and those before it have cost its people: first what is public, then what is not.

    `show` may be left out. Example: `confide ledger state/spam2 --person ann`
    """
    seen = look(folder, ledger, model, person)
    say("public", "bold")
    for line in seen.public:
        say(f"  {line}")
    say(OPERATOR, "bold red")
    for line in seen.private:
        say(f"  {line}")


@ledger.command("move")
def move(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="The folder of a saved POP, or postgresql://host/database.")
    ],
    target: Annotated[str, typer.Argument(metavar="TO", help="Where its ledger goes: a folder, or postgresql://….")],
    model: Model = MODEL,
) -> None:
    """Move a model's ledger from its folder to a PostgreSQL server, or back. Nothing is lost, nothing is spent twice.

    Stop whatever uses the model first. The old ledger refuses afterwards, and says where it went; the state is then
    loaded with the new one (`ledger =` in a service's file). If it is interrupted, give the same command again.

    Example: `confide ledger move state/spam postgresql://db.local/confide --model spam`
    """
    (old, name), (new, to) = _place(source, model), _place(target, model)
    before, after, pairs = Kept(old), Kept(new), {name: to, before_of(name): before_of(to)}
    known = before.models()
    if name not in known:
        raise ValueError(f"{before.name} has no model {name!r}: it has {', '.join(known) or 'none'}; see --model")
    before.move(after, {one: other for one, other in pairs.items() if one in known})
    say(f"{name!r} of {before.name} was moved to {after.name}, where it is called {to!r}")
    say(f"it is not counted in {before.name} any more: load the state with the ledger {after.name}")


def _place(where: str, model: str) -> tuple[str | Path, str]:
    """Where a ledger is, and what its model is called there: in a folder all are called the same."""
    if where.startswith(("postgresql://", "postgres://")):
        return where, model
    return Path(where) / "ledger.db", MODEL
