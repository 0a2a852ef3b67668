"""Every reader of files, fed with files that were damaged or forged: `make fuzz SECONDS=300`."""
