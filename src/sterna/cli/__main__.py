"""`python -m sterna.cli` is `sterna`."""

from sterna.cli import run

if __name__ == "__main__":
    run()
