#!/usr/bin/env bash
# Makes a virtual environment with Sample Factory, in .venv beside this script or in the folder $1.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-$here/.venv}
"${PYTHON:-python3}" -m venv "$folder"
"$folder/bin/python" -m pip install --disable-pip-version-check --quiet -r "$here/requirements.txt"
echo "installed: $folder/bin/python"
