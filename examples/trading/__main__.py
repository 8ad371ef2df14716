"""Run the example: ``python -m examples.trading`` from the root of the repository."""

from examples.trading.replay import main

if __name__ == "__main__":
    main()
