"""When is which message sent, and how does it arrive once and in order? Sans-IO state machines.

What all kinds of session share stands here, and a folder for each kind below.

===================  ==================================================================
``kinds``            which kinds of session there are, and how to add one
``machine``          what is legal in which state; an owner's consent
``session``          a machine with its mail: messages that come twice, late or never
``events``           what happens to a session, and what it asks for
``session_records``  what a session must not forget
``retry_policy``     when a message is sent again, and when a peer counts as lost
``tree_walk``        how rows walk down trees of several owners
``record_columns``   how an owner shows which of its records share a column
``diagram``          the state tables as pictures
===================  ==================================================================
"""
