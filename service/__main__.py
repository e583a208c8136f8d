"""`python -m service` is `ftrl`."""

from service.cli.main import main

main()
