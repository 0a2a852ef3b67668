"""`python -m plench.sweep launch|delete_incomplete …`: the paper's command, the same as `plench sweep …`."""

import sys

from plench.cli import main

if __name__ == "__main__":
    sys.exit(main(["sweep", *sys.argv[1:]]))
