"""FlatBuffers: tables, vectors and texts that lead to each other by offsets.

Begin with `parser`: how a table is read, and a node described. `schema` tells the types of a format, `formats` the
formats that are a schema and little more, `survey` goes through a whole file at once. `schemaless` reads any schema, or
none; `flex` FlexBuffers, which need none, and `flexbuffers` files of them.
"""
