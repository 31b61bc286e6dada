"""Commands, schedules, run folders: everything with a process, a file or a clock in it."""
