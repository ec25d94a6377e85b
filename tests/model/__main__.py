"""`python -m tests.model`."""

import sys

from tests.model.run import main

sys.exit(main())
