"""The view: pictures and pages; it computes nothing."""
