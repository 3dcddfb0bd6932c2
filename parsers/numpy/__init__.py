"""numpy's files: an array in .npy, a zip archive of arrays in .npz."""
