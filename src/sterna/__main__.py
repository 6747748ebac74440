"""`python -m sterna` is `sterna`."""

from sterna.cli import run

if __name__ == "__main__":
    run()
