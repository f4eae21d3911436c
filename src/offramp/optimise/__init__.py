"""LOSS -> PARAMETERS: alignment, strategies, and the only training loop."""
