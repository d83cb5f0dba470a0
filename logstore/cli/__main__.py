"""`python -m logstore.cli` is `logstore`."""

from logstore.cli.main import main

if __name__ == "__main__":
    main()
