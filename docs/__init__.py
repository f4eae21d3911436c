"""Documents, and the commands that keep them true."""
