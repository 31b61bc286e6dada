"""The commands and their option parsers."""
