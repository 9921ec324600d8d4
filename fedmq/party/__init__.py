"""How does one party's daemon run? Its rooms, and what a party keeps in each.

==================  ==================================================================
``daemon``          starting and stopping the parts, in order
``assembly``        how the parts of a daemon are put together
``configuration``   the files that people write: federation, party, job
``identity``        keys, certificates and the sealing of messages
``data``            rows of a source, as a table of columns by id
``store``           what survives a crash
``compute``         the processes in which arithmetic runs
``sessions``        taking messages, running sessions, going on after a crash
``services``        the owner's requests: trainings, predictions, alignments
``online``          scores while a caller waits, and their limits
``card``            the content and the signatures of a model card
``consent``         what the policy and the owner allow, and the audit log
``console``         pages for the owner's browser
``http``            addresses for scores, health and metrics
``operations``      status, health and dead letters
``telemetry``       counters, spans and timelines
``atomic_file``     files that are written whole or not at all
==================  ==================================================================
"""
