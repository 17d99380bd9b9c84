"""Training: what a run folder tells of a training, while it goes on and afterwards."""

from glasshead.studio.views.training.told import TrainingLog

__all__ = ["TrainingLog"]
