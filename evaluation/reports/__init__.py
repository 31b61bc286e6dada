"""Reports on runs: figures and tables, as one HTML page and as Markdown."""
