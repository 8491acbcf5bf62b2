"""The store: files of a mesh, what is written in them, and the rules that keep them whole."""
