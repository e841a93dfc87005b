"""``python -m recovery`` is ``node-recovery``."""

from recovery.cli import main

raise SystemExit(main())
