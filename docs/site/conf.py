"""Configuration of the documentation site. Sphinx reads it; `python docs/build.py` starts Sphinx.

The source folder is the root of the checkout, so that every link means the same file here and in
the repository. docs/design/documentation.md says why Sphinx.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

project = "fastweights"
copyright = "the fastweights authors, MIT licence"
root_doc = "docs/index"
include_patterns = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "benchmarks/**/README.md",
    "docs/*.md",
    "docs/*/*.md",
    "docs/results/*/README.md",
    "docs/results/*/trials.md",
    "docs/notebooks/*.ipynb",
    "kernels/*/backward.md",
]
# Not searched: other people's files, build output, and the second name of every room.
exclude_patterns = [".*", "build", "runs", "fastweights", "tests", "*.egg-info"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "docstrings",
    "mathml",
    "public_names",
]

myst_enable_extensions = ["dollarmath", "html_image", "colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # `docs/run_notebooks.py` runs the notebooks; their outputs are kept
html_math_renderer = "mathml"

autodoc_default_options = {"members": True, "undoc-members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 88

html_theme = "pydata_sphinx_theme"
html_title = "fastweights"
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["style"]
html_css_files = ["site.css"]
templates_path = ["templates"]
html_sidebars = {"**": ["all-pages"], root_doc: []}  # the front page has the same list itself
html_theme_options = {
    "navbar_center": [],  # a line has no room for all pages, and some of them are no overview
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
}
