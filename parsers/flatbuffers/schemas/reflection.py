"""The schema of compiled schemas, .bfbs files (google/flatbuffers reflection/reflection.fbs, Apache 2.0)."""

from __future__ import annotations

SCHEMA = """
root Schema BFBS
enum BaseType int8 None UType Bool Byte UByte Short UShort Int UInt Long ULong Float Double String Vector Obj Union
 Array Vector64
table Type base_type:BaseType element:BaseType index:int32=-1 fixed_length:uint16 base_size:uint32=4
 element_size:uint32
table KeyValue key:string value:string
table EnumVal name:string value:int64 object:Object union_type:Type documentation:[string] attributes:[KeyValue]
table Enum name:string values:[EnumVal] is_union:bool underlying_type:Type attributes:[KeyValue]
 documentation:[string] declaration_file:string
table Field name:string type:Type id:uint16 offset:uint16 default_integer:int64 default_real:float64 deprecated:bool
 required:bool key:bool attributes:[KeyValue] documentation:[string] optional:bool padding:uint16 offset64:bool
table Object name:string fields:[Field] is_struct:bool minalign:int32 bytesize:int32 attributes:[KeyValue]
 documentation:[string] declaration_file:string
table RPCCall name:string request:Object response:Object attributes:[KeyValue] documentation:[string]
table Service name:string calls:[RPCCall] attributes:[KeyValue] documentation:[string] declaration_file:string
flags AdvancedFeatures uint64 AdvancedArrayFeatures AdvancedUnionFeatures OptionalScalars DefaultVectorsAndStrings
table SchemaFile filename:string included_filenames:[string]
table Schema objects:[Object] enums:[Enum] file_ident:string file_ext:string root_table:Object services:[Service]
 advanced_features:AdvancedFeatures fbs_files:[SchemaFile]
"""
