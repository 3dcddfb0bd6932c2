"""FlatBuffers: tables, vectors and texts that lead to each other by offsets.

Begin with `parser`: how a table is read, and a node described. `schema` tells the types of a format, `formats` the
formats that are a schema and little more, `verify` goes through a whole file at once.
"""
