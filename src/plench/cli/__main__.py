"""`python -m plench.cli …`, the same as `plench …`."""

import sys

from plench.cli import main

sys.exit(main())
