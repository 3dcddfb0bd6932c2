"""The schema of ExecuTorch programs (pytorch/executorch schema/program.fbs, BSD)."""

from __future__ import annotations

SCHEMA = """
enum ScalarType int8 BYTE CHAR SHORT INT LONG HALF FLOAT DOUBLE BOOL=11 QINT8 QUINT8 QINT32 BFLOAT16 QUINT4X2 QUINT2X4
 BITS16=22 FLOAT8E5M2 FLOAT8E4M3FN FLOAT8E5M2FNUZ FLOAT8E4M3FNUZ UINT16 UINT32 UINT64
root Program ET12
table ContainerMetadata encoded_inp_str:string encoded_out_str:string
table Null
table AllocationDetails memory_id:uint32 memory_offset_low:uint32 memory_offset_high:uint32
enum TensorShapeDynamism int8 STATIC DYNAMIC_BOUND DYNAMIC_UNBOUND
enum TensorDataLocation int8 SEGMENT EXTERNAL
enum DeviceType int8 CPU CUDA
table ExtraTensorInfo mutable_data_segments_idx:uint64 fully_qualified_name:string location:TensorDataLocation
 device_type:DeviceType=CPU device_index:int8
table Tensor scalar_type:ScalarType storage_offset:int32 sizes:[int32] dim_order:[uint8] requires_grad:bool
 data_buffer_idx:uint32 allocation_info:AllocationDetails layout:int8 shape_dynamism:TensorShapeDynamism
 extra_tensor_info:ExtraTensorInfo
table Int int_val:int64
table Bool bool_val:bool
table Double double_val:float64
table String string_val:string
table IntList items:[int64]
table DoubleList items:[float64]
table BoolList items:[bool]
table TensorList items:[int32]
table OptionalTensorList items:[int32]
union KernelTypes Null Int Bool Double Tensor String IntList DoubleList BoolList TensorList OptionalTensorList
table EValue val:KernelTypes
table Operator name:string overload:string
table KernelCall op_index:int32 args:[int32]
table DelegateCall delegate_index:int32 args:[int32]
table MoveCall move_from:int32 move_to:int32
table JumpFalseCall cond_value_index:int32 destination_instruction:int32
table FreeCall value_index:int32
union InstructionArguments KernelCall DelegateCall MoveCall JumpFalseCall FreeCall
table Instruction instr_args:InstructionArguments
table Frame filename:string lineno:int32 name:string context:string
table FrameList items:[Frame]
enum DataLocation int8 INLINE SEGMENT
table BackendDelegateDataReference location:DataLocation index:uint32
table CompileSpec key:string value:[uint8]
table BackendDelegate id:string processed:BackendDelegateDataReference compile_specs:[CompileSpec]
table Chain inputs:[int32] outputs:[int32] instructions:[Instruction] stacktrace:[FrameList]
table ExecutionPlan name:string container_meta_type:ContainerMetadata values:[EValue] inputs:[int32] outputs:[int32]
 chains:[Chain] operators:[Operator] delegates:[BackendDelegate] non_const_buffer_sizes:[int64]
 non_const_buffer_device:[NonConstBufferDevice]
table NonConstBufferDevice buffer_idx:int32 device_type:DeviceType=CPU device_index:int8
table Buffer storage:[uint8]
table BackendDelegateInlineData data:[uint8]
table DataSegment offset:uint64 size:uint64
table SubsegmentOffsets segment_index:uint32 offsets:[uint64]
table NamedData key:string segment_index:uint32
table Program version:uint32 execution_plan:[ExecutionPlan] constant_buffer:[Buffer]
 backend_delegate_data:[BackendDelegateInlineData] segments:[DataSegment] constant_segment:SubsegmentOffsets
 mutable_data_segments:[SubsegmentOffsets] named_data:[NamedData]
"""
