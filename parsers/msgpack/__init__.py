"""The MessagePack parser, and that of the checkpoints of flax; `parser` is where to begin."""
