"""What is served over HTTP? A server on the daemon's event loop, one group of addresses a file.

Needs the extra ``fedmq[http]``.
"""
