"""What changed and what disagrees: pure functions on frames and statements, never a database."""
