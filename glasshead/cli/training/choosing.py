"""Choosing: which strategy the options of a command ask for."""

from typing import Any

from glasshead.models.decoding import Beam, Greedy, Sampling, Strategy

_TEMPERATURE = 0.8


def chosen_strategy(**options: Any) -> Strategy:
    """Greedy at temperature 0, a beam where one is asked for, else sampling.

    Args:
        options: As the command line names them; None for what is not given.

    Errors: a ValueError where the options do not go together, or a number is none.

    >>> chosen_strategy(temperature=0.0), chosen_strategy(beam=3)
    (Greedy(repetition_penalty=1.0), Beam(width=3, length_penalty=1.0, candidates=1))
    """
    given = {name: value for name, value in options.items() if value is not None}
    if "beam" in given:
        alone = {"beam", "length_penalty"}
        _check_only(given, alone, "--beam searches, and")
        return Beam(given["beam"], length_penalty=given.get("length_penalty", 1.0))
    if "length_penalty" in given:
        raise ValueError("--length-penalty belongs to a beam: add --beam WIDTH, or leave it out.")
    if given.get("temperature") == 0:
        alone = {"temperature", "seed", "repetition_penalty"}
        _check_only(given, alone, "--temperature 0 takes the likeliest, and")
        return Greedy(repetition_penalty=given.get("repetition_penalty", 1.0))
    return Sampling(
        temperature=given.get("temperature", _TEMPERATURE),
        top_k=given.get("top_k"),
        top_p=given.get("top_p"),
        seed=given.get("seed"),
        repetition_penalty=given.get("repetition_penalty", 1.0),
    )


def _check_only(given: dict[str, Any], known: set[str], why: str) -> None:
    surplus = [f"--{name.replace('_', '-')}" for name in given if name not in known]
    if surplus:
        raise ValueError(f"{why} {', '.join(surplus)} would change nothing: leave it out.")
