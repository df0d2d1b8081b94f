"""`python -m inferometer`."""

from inferometer.cli import main

if __name__ == "__main__":
    main()
