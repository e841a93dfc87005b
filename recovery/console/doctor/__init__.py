"""``node-recovery doctor``: what is missing for recovery to work here?

An *area* is a function that looks at one part of the world and yields findings, one sentence each. ``visit``
is what they know and find out for each other, ``round`` asks them one after the other and never waits for
long, ``report`` prints. Nothing here changes anything.
"""
