"""Agents with fast-weight memory: an IMPALA / V-trace learner with pluggable recurrent cores.

In a checkout, this folder holds a link to each of the folders beside it, so that the code is
imported as `fastweights.cores`, `fastweights.agents`, and so on, whether it is installed or not.
"""

from pathlib import Path

# Archives and some file systems turn links into small text files. Python then looks for the
# folders where the links point to.
if not (Path(__file__).parent / "cores").is_dir():
    __path__.append(str(Path(__file__).resolve().parents[1]))
