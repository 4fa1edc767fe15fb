"""What lies outside of mathematics: files, memory, terminals, other packages."""
