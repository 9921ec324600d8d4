"""What does it cost? One benchmark a file, run as ``python -m benchmarks.NAME``.

`report` writes docs/measured/benchmarks.md and its data; `online`, `safety` and `estimate` write a
page each, and `papers` the two of the papers' experiments. The others print a table.
"""
