"""``python -m tests.browser.bench``: measure what panels cost in a real JupyterLab."""

import sys

from tests.browser.bench.rows import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
