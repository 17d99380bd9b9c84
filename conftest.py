"""What every test and doctest shares: a plan's memory, which is printed, depends on the threads."""

import torch

torch.set_num_threads(2)

# What builds the site has no examples, and wants Sphinx.
collect_ignore = ["docs/build_site.py", "docs/building", "docs/conf.py"]
