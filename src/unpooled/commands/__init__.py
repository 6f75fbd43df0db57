"""The commands that work on files: fit, resume, predict, export, report; cli.py hooks them in."""
