"""The arrays in MessagePack files of flax; `viewer` is where to begin."""
