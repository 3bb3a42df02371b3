"""`python -m cera_py`."""

import sys

if __name__ == "__main__":
    try:
        from cera_py.cli import main

        sys.exit(main())
    except KeyboardInterrupt:  # so early that the command line was not there yet to catch it
        sys.exit(130)
