"""`python -m glasshead` is the command `glasshead`."""

import sys

from glasshead.cli import main

if __name__ == "__main__":
    sys.exit(main())
