"""``python -m framefeed``."""

import sys

from framefeed.cli import main

if __name__ == "__main__":
    sys.exit(main())
