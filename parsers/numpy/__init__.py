"""numpy's files: an array in .npy, a zip archive of arrays in .npz.

What the header says of type and shape, `pparse.parsers.numpy.npy` tells; what an archive adds, ``npz``.
"""
