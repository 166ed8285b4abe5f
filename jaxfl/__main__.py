"""`python -m jaxfl` is the command `jaxfl`."""

import sys

from jaxfl.cli import main

if __name__ == "__main__":
    sys.exit(main())
