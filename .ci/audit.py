"""Known vulnerabilities of what is installed beside this Python: `make audit`. Needs the network.

Asks PyPI's advisories, through pip-audit, about every installed package at its public version (a
build such as 2.13.0+cpu is 2.13.0 there). Exit code 0: none known; 1: some; 2: could not be asked.
"""

import json
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

OURS = "fastweights"


def installed() -> list[str]:
    """`name==version` of every package but ours."""
    found = {one.metadata["Name"]: one.version.partition("+")[0] for one in distributions()}
    return sorted(f"{name}=={found[name]}" for name in found if name.lower() != OURS)


def judge(dependencies: list[dict[str, Any]]) -> tuple[list[str], int]:
    """What to say about pip-audit's findings, and the exit code."""
    unknown = [one["name"] for one in dependencies if "skip_reason" in one]
    found = [(one, flaw) for one in dependencies for flaw in one.get("vulns", ())]
    if len(unknown) == len(dependencies):
        return ["error: the advisories know none of these packages: is this PyPI itself?"], 2
    lines = [
        f"{one['name']} {one['version']}: {flaw['id']}, fixed in "
        f"{', '.join(flaw['fix_versions']) or 'no version yet'}"
        for one, flaw in found
    ]
    if unknown:
        lines.append(f"not known there, so not audited: {', '.join(unknown)}")
    lines.append(f"{len(dependencies) - len(unknown)} packages audited, {len(found)} findings")
    return lines, 1 if found else 0


def main() -> int:
    """The command; returns its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder) / "installed.txt"
        pinned.write_text("\n".join(installed()) + "\n")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(pinned), "--no-deps"]
        options = ["--disable-pip", "--format", "json", "--progress-spinner", "off"]
        done = subprocess.run([*command, *options], capture_output=True, text=True)
    try:
        lines, code = judge(json.loads(done.stdout)["dependencies"])
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        lines, code = (
            [f"error: the advisories cannot be asked, which needs the network: {reason}"],
            2,
        )
    print("\n".join(lines), file=sys.stderr if code == 2 else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main())
