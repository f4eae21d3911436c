"""The verbs of the command line, a file for each, and what they share."""
