"""What every test and doctest shares: a plan's memory, which is printed, depends on the threads."""

import torch

torch.set_num_threads(2)
