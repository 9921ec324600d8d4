"""How well does a column tell a label, if only steps of its information value may be read?

The sums of each bin stay shared: the passive party adds numbers to them that it draws evenly from
all there are, so what the active party decrypts is random. A garbled circuit takes both shares, and
shows the active party alone how many steps of 0.02 the information value of a column has. The
passive party garbles, and learns nothing.

==================  ==========================================================================
``steps``           the circuits of a bin and of a column, and a proven bound of their errors
``label``           what of the label is added up by bin, and both parties' shares of that
``blocks``          transfers and circuits of some columns at once, garbled and evaluated
==================  ==========================================================================
"""
