"""`python -P -m orbit_lsp`: the command line; -P, so that a folder of the user cannot replace ours."""

from orbit_lsp.cli.main import main

raise SystemExit(main())
