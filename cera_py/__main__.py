"""`python -m cera_py`."""

import sys

from cera_py.cli import main

if __name__ == "__main__":
    sys.exit(main())
