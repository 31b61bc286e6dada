"""One agent's training run: options, loop, replicas, resuming, export."""
