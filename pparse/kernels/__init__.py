"""Hot loops: plain annotated functions over bytes, without objects of ours and without I/O."""
