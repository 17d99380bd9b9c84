"""Statistics that were asked of a problem: what they need, and what is made of it."""

from typing import Any

from torch import Tensor

from glasshead.attention.observation import Observation
from glasshead.attention.plan import planned
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import Reduction


class Asked:
    """Checked statistics, by name, and the reductions that they share.

    Attributes:
        reductions: What an engine is to take from the weights, each once.
    """

    def __init__(
        self, problem: Problem, statistics: dict[str, Statistic], *, gradient: bool = False
    ) -> None:
        self.problem, self.statistics, self.gradient = problem, statistics, gradient
        self.reductions: list[Reduction] = []
        self._places: dict[str, list[int]] = {}
        for name, one in statistics.items():
            one.check(problem)
            if gradient and not one.differentiable:
                raise ValueError(
                    "gradient=True takes statistics that have one, such as Entropy(), "
                    f"and got {one!r}."
                )
            self._places[name] = [self._place(wanted) for wanted in one.reductions(problem)]

    def _place(self, wanted: Reduction) -> int:
        """Where the reduction stands among all, to which it is added where it does not yet."""
        for place, one in enumerate(self.reductions):
            if one == wanted:
                return place
        self.reductions.append(wanted)
        return len(self.reductions) - 1

    def check_budget(self, engine: str, budget: int) -> None:
        """Raise a ValueError where observing would take more than `budget` bytes."""
        plan = planned(self.problem, engine, self.reductions)
        if plan.bytes > budget:
            raise ValueError(
                f"observe takes at most budget={budget} bytes, and would need {plan.bytes} on the "
                f"{plan.engine} engine: raise budget=, or observe fewer queries."
            )

    def observation(self, context: Tensor, reduced: list[tuple[Tensor, ...]]) -> Observation:
        """What an engine gave, finished and in the layout of the inputs."""
        if not self.gradient:
            reduced = [tuple(part.detach() for part in parts) for parts in reduced]
        values = {
            name: self._as_given(
                one.finish(self.problem, *(reduced[i] for i in self._places[name]))
            )
            for name, one in self.statistics.items()
        }
        return Observation(self.problem.as_given(context), self.statistics, values)

    def _as_given(self, value: Any) -> Any:
        """A statistic in the layout of the inputs; of several tensors, each."""
        if isinstance(value, Tensor):
            return self.problem.as_given(value)
        parts = [self.problem.as_given(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
