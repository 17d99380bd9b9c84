"""Statistics that were asked of a problem: what they need, and what is made of it."""

from typing import Any

from torch import Tensor

from glasshead.attention.observation import Observation
from glasshead.attention.plan import planned
from glasshead.recipe.problem import Problem
from glasshead.statistics import Statistic
from glasshead.statistics.reductions import Reduction


class Asked:
    """Statistics, by name, and the reductions that they share."""

    def __init__(
        self, problem: Problem, statistics: dict[str, Statistic], *, gradient: bool = False
    ) -> None:
        self.problem, self.statistics, self.gradient = problem, statistics, gradient
        self._shared: list[Reduction] | None = None
        self._places: dict[str, list[int]] = {}

    def check(self) -> None:
        """Raise a ValueError where a statistic does not fit the problem, or has no gradient."""
        for one in self.statistics.values():
            one.check(self.problem)
            if self.gradient and not one.differentiable:
                raise ValueError(
                    "gradient=True takes statistics that have one, such as Entropy(), "
                    f"and got {one!r}."
                )

    @property
    def reductions(self) -> list[Reduction]:
        """What an engine is to take from the weights, each once."""
        # No cached_property, whose lock torch.compile does not know.
        if self._shared is None:
            self._shared = self._share()
        return self._shared

    def _share(self) -> list[Reduction]:
        """The reductions; where those of each statistic stand among them is kept beside."""
        reductions: list[Reduction] = []
        for name, one in self.statistics.items():
            self._places[name] = []
            for wanted in one.reductions(self.problem):
                # By `==` alone, as tensors within a reduction cannot be hashed.
                at = next((i for i, known in enumerate(reductions) if known == wanted), None)
                self._places[name].append(len(reductions) if at is None else at)
                if at is None:
                    reductions.append(wanted)
        return reductions

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
        return Observation(self.problem.as_given(context), self.statistics, self.finished(reduced))

    def finished(self, reduced: list[tuple[Tensor, ...]]) -> dict[str, Any]:
        """Each statistic by its name, in the layout of the inputs."""
        if not self.gradient:
            reduced = [tuple(part.detach() for part in parts) for parts in reduced]
        return {
            name: self._as_given(
                one.finish(self.problem, *(reduced[i] for i in self._places[name]))
            )
            for name, one in self.statistics.items()
        }

    def _as_given(self, value: Any) -> Any:
        """A statistic in the layout of the inputs; of several tensors, each."""
        if isinstance(value, Tensor):
            return self.problem.as_given(value)
        parts = [self.problem.as_given(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
