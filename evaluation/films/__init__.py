"""Films of an agent at work: the game, what it sees and decides, and its memory."""
