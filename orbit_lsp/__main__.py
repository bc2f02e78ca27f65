"""`python -P -m orbit_lsp`: with -P, so that a folder of the user's cannot stand in for ours."""

from orbit_lsp.cli.main import main

raise SystemExit(main())
