"""`python -m service` is `ftrl`."""

from service.cli import main

main()
