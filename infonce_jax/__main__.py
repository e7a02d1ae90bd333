"""`python -m infonce_jax` is the command line."""

import sys

from infonce_jax.study.cli import main

if __name__ == "__main__":
    sys.exit(main())
