"""Save the three matrices of an attention for `glasshead explain --weights`.

python examples/projection.py weights.safetensors
glasshead explain --vectors examples/words.csv --weights weights.safetensors
"""

import sys

import torch
from safetensors.torch import save_file

from glasshead.ladder import SelfAttentionV1


def main(file: str) -> None:
    """Write `W_query W_key W_value`, [4, 2], of a fresh step 2 of the ladder."""
    torch.manual_seed(123)
    save_file(SelfAttentionV1(d_in=4, d_out=2).state_dict(), file)


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["weights.safetensors"]))
