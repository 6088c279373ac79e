"""Makes `python -m budgetjax` the command `budgetjax`."""

from budgetjax.cli import main

if __name__ == "__main__":
    main()
