"""python -m glasshead.tasks.story_model trains the story model again, in its place."""

import torch

from glasshead.tasks.story_model import FOLDER
from glasshead.tasks.story_model.making import make

# Threads divide sums, and so round otherwise.
torch.set_num_threads(1)
make(FOLDER)
