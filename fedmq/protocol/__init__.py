"""When is which message sent, and how does it arrive once and in order? Sans-IO state machines.

The files hold what all kinds of session share; each kind has a folder.

===================  ==================================================================
``kinds``            which kinds of session there are, and how to add one
``machine``          what is legal in which state; an owner's consent
``session``          a machine with its mail: messages that come twice, late or never
``events``           what happens to a session, and what it asks for
``session_records``  what a session must not forget
``retry_policy``     when a message is sent again, and when a peer counts as lost
``travelling_list``  how a list of blinded ids travels
``tree_walk``        how rows walk down trees of several owners
``sealed_sums``      how sums of leaves are asked for that nobody learns
``record_columns``   how an owner shows which of its records share a column
``diagram``          the state tables as pictures
``training``         how a model is trained (SecureBoost, Algorithms 1 and 2)
``inference``        how a file of ids is scored
``online``           how one batch is scored while somebody waits
``alignment``        how common ids are found
``overlap``          how is counted whom all parties share
``screen``           how columns are looked at before a training
``deployment``       how all parties begin to serve a model together
``model_request``    what the active party asks of another party about a model
===================  ==================================================================
"""
