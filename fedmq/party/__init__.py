"""Who takes part in a federation? One long-running daemon for each party, and its rooms.

==================  ==================================================================
``daemon``          what starts and stops, in which order
``assembly``        how the parts of a daemon are put together
``configuration``   the files that people write: federation, party, job
``identity``        keys, certificates and the sealing of messages
``data``            rows of a source, as a table of columns by id
``store``           what survives a crash
``compute``         the processes in which arithmetic runs
``sessions``        which messages are taken, how sessions run, and go on after a crash
``services``        trainings, predictions, alignments: what can be asked for
``online``          scores while somebody waits, and their limits
``card``            what a model card says, and who signed it
``consent``         the owner's policy, what was spent of it, and the audit log
``console``         pages for the owner's browser
``http``            addresses for scores, health and metrics
``operations``      status, health and dead letters
``telemetry``       counters, spans and timelines
``atomic_file``     files that are written whole or not at all
==================  ==================================================================
"""
