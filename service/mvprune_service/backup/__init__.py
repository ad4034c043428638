"""Backups of a server: its database, its key, and what the database refers to in the store.

references.py   what a database refers to
archive.py      the folder or bucket with backups
making.py       `mvpctl server backup`
restoring.py    `mvpctl server restore`
commands.py     both on the command line
"""
