"""toril beside the libraries a user might pick instead: `python -m benchmarks.compare`."""
