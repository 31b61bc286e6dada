"""Build the documentation site: `python docs/build.py`, or `make docs`, which installs Sphinx.

Works without a network. A broken link, an unknown file, or a public name without a docstring ends
the build with exit code 1. Missing packages and a folder that cannot be written end it with 2.
"""

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED = ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_copybutton", "latex2mathml")
FRONT = '<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">\n'


def main(arguments: list[str] | None = None) -> int:
    """Build the site and return the exit code."""
    parser = argparse.ArgumentParser(description="Build the documentation site, strictly.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "docs", help="output folder")
    parser.add_argument("--fresh", action="store_true", help="read every page anew")
    options = parser.parse_args(arguments)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        print(
            f"error: the documentation needs {', '.join(missing)}: run `make docs`, or "
            "`pip install -e '.[docs]'` and this command again",
            file=sys.stderr,
        )
        return 2
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"error: --out {options.out}: {error.strerror}", file=sys.stderr)
        return 2
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # the reference imports the code only
    from sphinx.cmd.build import main as sphinx

    strict = ["-W", "--keep-going", "-q", *(["-E"] if options.fresh else [])]
    configuration = ["-c", str(ROOT / "docs" / "site"), "-d", str(options.out / ".doctrees")]
    code = sphinx([*strict, *configuration, str(ROOT), str(options.out)])
    if code == 0:
        (options.out / "index.html").write_text(FRONT)
        print(f"documentation: {options.out / 'docs' / 'index.html'}")
    return code


if __name__ == "__main__":
    sys.exit(main())
