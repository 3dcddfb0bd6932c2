"""Schemas of FlatBuffers, a format a module, as `pparse.parsers.flatbuffers.schema` reads them."""
