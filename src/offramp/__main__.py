"""`python -m offramp`: the command line, where the folder of installed commands is not on the path."""

from offramp.cli import main

if __name__ == "__main__":
    main()
