"""Text: words and their statistics, vectors, and what keeps both from being made twice."""
