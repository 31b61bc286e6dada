"""Export a trained agent to ONNX or safetensors, for use in other programs.

For example: `python launch/export.py RUN --format onnx`.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

if __name__ == "__main__":  # this checkout's code, whatever is installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from fastweights.host import run_command

    sys.path.pop(0)  # the folders beside the package are not packages
    sys.exit(run_command(Path(__file__).stem))

import tyro

from fastweights.evaluation import evaluations_in, model_card
from fastweights.host import (
    UserError,
    expanded,
    one_line_errors,
    typed_command,
    user_input,
)
from fastweights.launch.cli.parser import typed_options
from fastweights.records import AGENT_EXPORT
from fastweights.training import (
    Exported,
    Named,
    SavedAgent,
    check_packages,
    module_arguments,
    write_onnx,
)


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Named):
    """Export a trained agent to ONNX or safetensors.

    onnx: one file that computes one agent step, with the memory's state as input and output.
    safetensors: weights, config.json and a model card; all commands here can load the folder.
    """

    run: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder (the newest checkpoint), checkpoint, exported folder or TorchBeast's model.tar.
    """
    format: Literal["onnx", "safetensors"] = "onnx"
    """Export format; onnx requires the optional dependencies `onnx`."""
    out: Path | None = None
    """Output file (onnx) or folder (safetensors) (default: agent.onnx or agent)."""


@one_line_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = typed_options(ExportOptions, arguments, prog=typed_command("export"))
    with user_input():
        out = _check(options)
        (agent,) = options.agents([options.run], "cpu")
    for warning in agent.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if options.format == "safetensors":
        export_safetensors(agent, out)
        return 0
    with user_input():
        exported = write_onnx(agent.network, out, _facts(agent))
    _describe(out, exported)
    return 0


def export_safetensors(agent: SavedAgent, folder: Path) -> None:
    """Write weights, configuration and a model card to `folder`, and print how to evaluate it.

    Raises:
        UserError: the folder cannot be created, or has test games played with other weights.
        OSError: the files cannot be written.
    """
    if evaluations_in(folder) and not AGENT_EXPORT.is_of(agent.payload, folder):
        games = folder / "evaluations"
        raise UserError(f"{games} holds test games of other weights: move it, or use a new folder")
    kept = evaluations_in(agent.games_folder).values()
    card = model_card(agent.payload, [one for one in kept if one.agent_steps == agent.step])
    AGENT_EXPORT.write(agent.payload, folder, card)
    command = typed_command("evaluate", folder, *module_arguments(agent.options))
    print(f"exported: {folder}\nto evaluate:\n  {command}")


def _check(options: ExportOptions) -> Path:
    if options.format == "safetensors":
        out = expanded(options.out or Path("agent"))
        AGENT_EXPORT.check_folder(out, "--out ")
        return out
    out = expanded(options.out or Path("agent.onnx"))
    if out.is_dir():
        raise ValueError(f"--out {out} is a folder: give a file, such as {out / 'agent.onnx'}")
    if out.suffix != ".onnx":
        raise ValueError(f"--out {out} must end in .onnx (without --format safetensors)")
    check_packages()
    return out


def _facts(agent: SavedAgent) -> dict[str, Any]:
    network = agent.network.config
    return {
        "core": network.core,
        "env": agent.options.env,
        "agent_steps": agent.step,
        "frame_shape": list(network.frame_shape),
        "num_actions": network.num_actions,
    }


def _describe(out: Path, exported: Exported) -> None:
    print(f"exported: {out}, {out.stat().st_size / 1e6:.1f} MB")
    print(f"inputs: {', '.join(exported.inputs)}")
    print(f"outputs: {', '.join(exported.outputs)}")
    print(f"checked with ONNX Runtime: largest difference {exported.difference:.1e}")
