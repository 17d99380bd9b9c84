"""What came of a run, in sentences, and the settings in which compared runs differ."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glasshead.drawing.printable import printable
from glasshead.message import _
from glasshead.studio.panel import Panel
from glasshead.studio.views.training_log import LogRows, count_of

WORDS = {
    "training.found.diverged": _("From step {step} on, the loss is not finite."),
    "training.found.loss": _("The loss went from {first} to {last} in {steps} steps."),
    "training.found.entropy_collapse.all": _("All {of} heads collapsed at step {step}."),
    "training.found.entropy_collapse.spread": _(
        "All {of} heads collapsed between step {step} and step {last}."
    ),
    "training.found.entropy_collapse": _("{count} of {of} heads collapsed."),
    "training.found.maximum_logit": _("{count} of {of} heads had a score above {threshold}."),
    "training.found.first": _("The first alarm was at step {step}."),
    "training.settings": _("Settings that differ"),
    "training.setting": _("setting"),
    "training.settings.same": _("These runs have the same settings."),
    "training.settings.more": _("and {count} more settings"),
}

Found = tuple[str, dict[str, str]]
"""The name of a sentence, and its placeholders."""

_SETTINGS, _LETTERS = 48, 40


def findings_of(
    rows: LogRows, alarms: Sequence[dict[str, Any]] | None, heads: dict[str, Any] | None
) -> list[Found]:
    """Return what came of a run, the worst first: of its loss, and of its heads.

    Args:
        rows: Rows of the log.
        alarms: All alarms raised, as from `alarms_of`.
        heads: As from `heads_of`; None if the run was not watched.

    >>> raised = [
    ...     {"kind": "entropy_collapse", "layer": "a", "head": head, "step": 80, "threshold": "0.1"}
    ...     for head in range(3)
    ... ]
    >>> findings_of(LogRows(["loss"], [3, 5], [[4.0], [1.5]]), raised, {"of_heads": 3})[0]
    ('training.found.entropy_collapse.all', {'count': '3', 'of': '3', 'step': '80', ...})
    """
    steps, losses = rows.column("loss")
    finite = list(map(math.isfinite, losses))
    found: list[Found] = []
    # A loss that was finite again at the end has not diverged.
    if losses and not finite[-1]:
        since = max((at + 1 for at, is_finite in enumerate(finite) if is_finite), default=0)
        found.append(("training.found.diverged", {"step": count_of(steps[since])}))
    kinds = dict.fromkeys(alarm["kind"] for alarm in alarms or ())
    of = 0 if heads is None else heads["of_heads"]
    found += [_of_heads([a for a in alarms or () if a["kind"] == kind], of) for kind in kinds]
    if alarms:
        first = count_of(min(alarm["step"] for alarm in alarms))
        # A sentence about all heads names their first step.
        if not any(
            name.endswith((".all", ".spread")) and places["step"] == first for name, places in found
        ):
            found.append(("training.found.first", {"step": first}))
    if heads is not None and not alarms:
        found.append(("training.alarms.none", {}))
    if len(losses) > 1 and finite[0] and finite[-1]:
        ends = {"first": f"{losses[0]:.4g}", "last": f"{losses[-1]:.4g}"}
        found.append(("training.found.loss", ends | {"steps": count_of(steps[-1])}))
    return found


def _of_heads(alarms: Sequence[dict[str, Any]], of: int) -> Found:
    first: dict[tuple[str, int], int] = {}
    for alarm in alarms:
        head = alarm["layer"], alarm["head"]
        first[head] = min(alarm["step"], first.get(head, alarm["step"]))
    kind, begin, end = alarms[0]["kind"], min(first.values()), max(first.values())
    name = f"training.found.{kind}"
    if kind == "entropy_collapse" and 1 < len(first) == of:
        name += ".all" if begin == end else ".spread"
    places = {"count": len(first), "of": max(of, len(first)), "step": begin, "last": end}
    written = {place: count_of(number) for place, number in places.items()}
    return name, written | {"threshold": alarms[0]["threshold"]}


def differing(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the settings in which runs differ: their names, and the value of each run, or None.

    Args:
        configs: The contents of config.json, by the name of the run.

    >>> told = differing({"a": {"training": {"steps": 40, "clip": 1.0}}, "b": {"training": {}}})
    >>> told["rows"]
    [['training.clip', '1.0', None], ['training.steps', '40', None]]
    """
    flat = [dict(_flat("", config)) for config in configs.values()]
    names = sorted({name for one in flat for name in one})
    rows = [[name, *(one.get(name) for one in flat)] for name in names]
    different = [row for row in rows if len(set(row[1:])) > 1]
    return {
        "runs": list(configs),
        "rows": [[None if x is None else _brief(x) for x in row] for row in different[:_SETTINGS]],
        "more": max(0, len(different) - _SETTINGS),
    }


def _flat(prefix: str, config: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List all settings with their dotted names; a value that is a list is one setting."""
    found: list[tuple[str, str]] = []
    for name, value in config.items():
        whole = f"{prefix}{name}"
        if isinstance(value, Mapping):
            found += _flat(f"{whole}.", value)
        else:
            named = _named(value)
            found.append((whole, named if isinstance(named, str) else json.dumps(named)))
    return found


def _named(value: Any) -> Any:
    """Name files without the folders that they lie in, which are nobody else's concern."""
    if isinstance(value, list):
        return [_named(each) for each in value]
    is_path = isinstance(value, str) and Path(value).is_absolute()
    return Path(value).name if is_path else value


def _brief(text: str) -> str:
    return printable(text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…")


PANEL = Panel(words=WORDS)
