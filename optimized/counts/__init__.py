"""What is counted and not timed: launches, machine code, the bytes of exchanges and of memory."""
