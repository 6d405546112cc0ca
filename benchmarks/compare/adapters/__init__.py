"""One small program per library; each runs in the environment of its library and prints JSON."""
