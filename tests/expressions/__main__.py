"""`python -m tests.expressions`."""

import sys

from tests.expressions.run import main

sys.exit(main())
