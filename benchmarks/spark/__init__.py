"""What the Spark side costs, beside the same work without Spark."""
