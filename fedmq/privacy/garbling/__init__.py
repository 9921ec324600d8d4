"""How do two parties compute on what neither shows? One garbles a circuit, the other evaluates it.

Yao's method with free XOR (Kolesnikov and Schneider, ICALP 2008) and half gates (Zahur, Rosulek and
Evans, Eurocrypt 2015), over many instances of a circuit at once, against parties that follow the
protocol. Inputs of the evaluator come by `fedmq.privacy.oblivious_transfer`.

==================  ==========================================================================
``circuit``         gates, and words of bits as integers, float32 and float64
``schedule``        in which order gates are computed, and where their results lie; results on
                    inputs that anybody may see
``machine_gates``   the processor's own code for ANDs, where it has AES
``half_gates``      garbling, and evaluation of what was garbled
==================  ==========================================================================
"""
