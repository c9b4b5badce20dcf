"""What is counted and not timed: launches, machine code, and the bytes of exchanges."""
