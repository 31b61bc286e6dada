"""What a run leaves on disk: its folder, log, checkpoints and TensorBoard scalars."""
