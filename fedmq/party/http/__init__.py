"""HTTP on the daemon: a server inside its event loop, and one file per group of addresses.

Needs the extra ``fedmq[http]``.
"""
