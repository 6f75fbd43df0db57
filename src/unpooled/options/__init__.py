"""Options of the commands and of Python, each declared once.

The package imports nothing heavy, because ``--help`` reads the declarations.
"""
