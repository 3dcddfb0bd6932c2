"""List names, types and shapes of an .npz with numpy: ``load`` reads each array, ``headers`` the header of each."""

from __future__ import annotations

import sys

import numpy as np

how, path = sys.argv[1:3]
count = 0
with np.load(path) as arrays:
    for name in arrays.files:
        if how == "load":
            array = arrays[name]
            print(name, array.dtype, array.shape)
        else:
            with arrays.zip.open(f"{name}.npy") as member:
                np.lib.format.read_magic(member)
                shape, _, dtype = np.lib.format.read_array_header_1_0(member)
                print(name, dtype, shape)
        count += 1

from report import report  # noqa: E402 -- after the work

report(count=count)
