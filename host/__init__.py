"""The process, the machine, the terminal and files. Imports no other room."""
