"""The schema of data files of ExecuTorch (pytorch/executorch extension/flat_tensor/serialize/flat_tensor.fbs, BSD)."""

from __future__ import annotations

SCHEMA = """
enum ScalarType int8 BYTE CHAR SHORT INT LONG HALF FLOAT DOUBLE BOOL=11 QINT8 QUINT8 QINT32 BFLOAT16 QUINT4X2 QUINT2X4
 BITS16=22 FLOAT8E5M2 FLOAT8E4M3FN FLOAT8E5M2FNUZ FLOAT8E4M3FNUZ UINT16 UINT32 UINT64
root FlatTensor FT01
table TensorLayout scalar_type:ScalarType sizes:[int32] dim_order:[uint8]
table DataSegment offset:uint64 size:uint64
table NamedData key:string segment_index:uint32 tensor_layout:TensorLayout
table FlatTensor version:uint32 segments:[DataSegment] named_data:[NamedData]
"""
