"""One module per command of the command line; each has `run(args) -> exit code`."""
