"""The MessagePack parser, and that of the checkpoints of flax; `pparse.parsers.msgpack.parser` is where to begin."""
