"""What `toril demo` runs: thousands of jobs, trouble on purpose, and sums that fit."""
