"""The `logstore` command. Nothing in the library imports this package."""
