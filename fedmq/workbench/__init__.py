"""How does a program drive its party's daemon?

Commands and notebooks ask for the same things here, with the same words and errors.
"""
