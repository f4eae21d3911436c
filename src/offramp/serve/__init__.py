"""MODEL -> PEOPLE: an HTTP server in which many clients share batches, and its page."""
