"""Pickles, protocols 0 to 5: read by a machine of our own, which runs nothing, imports nothing and calls nothing.

Where values begin and end, the kernel `pparse.kernels.pickle_scan` finds; `pparse.parsers.pickle.program` keeps it, and
``values`` makes them; ``parser`` is where to begin.
"""
