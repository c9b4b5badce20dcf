"""The command on a small model: what it measures, writes and refuses; and the shipped model."""
