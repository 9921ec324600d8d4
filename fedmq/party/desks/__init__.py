"""Where the daemon does its business: one desk per kind of session.

A desk joins sessions that other parties open, and carries out what the owner of this party asks.
A new kind of session is a new desk, and a line in the daemon.
"""
