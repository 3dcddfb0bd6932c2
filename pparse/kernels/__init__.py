"""Hot loops: plain annotated functions over bytes. No objects of ours, no I/O."""
