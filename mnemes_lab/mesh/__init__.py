"""The mesh: the only thing that acts."""
