"""`python -m toril.cli`, for where the command is not on the path."""

from toril.cli.main import main

main()
