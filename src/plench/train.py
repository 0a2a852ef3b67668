"""`python -m plench.train …`: the command of the paper, the same as `plench train …`."""

import sys

from plench.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
