"""TOKENS -> LAYER STATES: loading a backbone, and the only walk through its layers."""
