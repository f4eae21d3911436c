"""Speed and memory, each a ratio against a peer in the same run.

`make bench` (or `python -m benchmarks [NAME ...]`) prints every ratio with its goal and writes
`results/benchmarks/NAME.json`.
"""
