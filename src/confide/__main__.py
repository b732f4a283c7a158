"""`python -m confide`: the command line."""

from confide.cli.main import main

if __name__ == "__main__":
    main()
