"""How do two parties compute on what neither shows? One garbles a circuit, the other evaluates it.

Yao's method with free XOR (Kolesnikov and Schneider, ICALP 2008) and half gates (Zahur, Rosulek and
Evans, Eurocrypt 2015), over many instances of a circuit at once, against parties that follow the
protocol. Inputs of the evaluator come by `fedmq.privacy.oblivious_transfer`.

==================  ==========================================================================
``circuit``         gates, and which of them a result needs
``integers``        adder, subtracter, comparison, multiplexer: words of bits
``floats``          float32 from integers; sum, difference and quotient, rounded as IEEE 754 says
``float_bits``      how float32 numbers enter a circuit, and leave it
``schedule``        in which order gates are computed, and where their results lie
``clear``           a circuit on inputs that anybody may see
``half_gates``      garbling, and evaluation of what was garbled
==================  ==========================================================================
"""
