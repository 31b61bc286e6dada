"""Reports on runs: what is in them, drawn and tabled, as one page and as Markdown."""
