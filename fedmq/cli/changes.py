"""``fedmq changes``: what would have had to be otherwise for another score."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.cli.scores import model_option, named_model, request_scores

__all__ = ["changes"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("person", metavar="ID")
@click.option("--above", type=float, metavar="SCORE", help="The score should be SCORE or more.")
@click.option("--below", type=float, metavar="SCORE", help="The score should be SCORE or less.")
@model_option
@json_option
def changes(
    party: Path,
    person: str,
    above: float | None,
    below: float | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Show the smallest change of each party's columns that would have moved the score of the
    person ID far enough.

    Each party's change is its own: all other columns stay as they are. The smallest one passes the
    fewest thresholds of the model; it is of one column, or of up to three where one is not enough.
    Another party tells its changes where its [policy] says changes = "told". Columns that nobody
    can change are named under changes in [data].
    """
    if (above is None) == (below is None):
        raise click.UsageError("say which score would do: either --above or --below")
    request = {"do": "changes", "id": person, "above": above, "below": below, "model": model}
    found = request_scores(state_folder(party), request, as_json)
    print_result(found, as_json, _in_words)
    print_next_step(as_json, "serving", party)


def _in_words(found: Any) -> Text:
    wanted = (
        f"{found['below']:g} or less" if found["above"] is None else f"{found['above']:g} or more"
    )
    scored = f"{found['id']}: {found['score']:.5f} by {named_model(found)}"
    if found["reached"]:
        return Text(f"{scored}, which is {wanted} already: nothing has to change")
    rows = [
        (party["party"], change["column"], change["change"], f"{party['score']:.5f}")
        for party in found["parties"]
        for change in party["changes"]
    ]
    none = [p["party"] for p in found["parties"] if p["tells"] and not p["changes"]]
    silent = [party["party"] for party in found["parties"] if not party["tells"]]
    return joined(
        f"{scored}; {wanted} would follow from any one party's changes:" if rows else scored,
        table(("party", "column", "change to", "score then"), rows) if rows else "",
        *(
            f"no change of three columns of {party} or fewer was found that is enough"
            for party in none
        ),
        *(
            f'{party} tells no changes; changes = "told" in its [policy] would allow it'
            for party in silent
        ),
    )
