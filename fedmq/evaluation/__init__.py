"""Is the model good? Figures of scored rows whose labels are known, and a report of them.

Needs the extra ``fedmq[report]``. It knows nothing of parties: labels and scores are enough.
"""
