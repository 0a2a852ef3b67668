"""`python -m plench …`, the same as `plench …`."""

import sys

from plench.cli import main

sys.exit(main())
