"""What runs on the machine that has the GPU (and, for compiling, on the author's own).

It imports only the standard library, and never orbit_lsp, pygls, lsprotocol or pydantic, because it runs in whatever
Python holds the user's torch and triton.
"""

from pathlib import Path

__version__ = "0.1.0"

PACKAGE = Path(__file__).resolve().parent
MAIN = PACKAGE / "__main__.py"
"""The file that starts a role in any Python: `python -P MAIN ROLE`."""
