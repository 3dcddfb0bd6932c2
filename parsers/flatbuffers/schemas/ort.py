"""The schema of ONNX Runtime's own format (microsoft/onnxruntime core/flatbuffers/schema/ort.fbs, MIT)."""

from __future__ import annotations

SCHEMA = """
root InferenceSession ORTM
enum AttributeType int32 UNDEFINED FLOAT INT STRING TENSOR GRAPH FLOATS INTS STRINGS TENSORS GRAPHS SPARSE_TENSOR
 SPARSE_TENSORS
table Shape dim:[Dimension]
table Dimension value:DimensionValue denotation:string
enum DimensionValueType int8 UNKNOWN VALUE PARAM
table DimensionValue dim_type:DimensionValueType dim_value:int64 dim_param:string
enum TensorDataType int32 UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64
 COMPLEX64 COMPLEX128 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ
table TensorTypeAndShape elem_type:TensorDataType shape:Shape
table MapType key_type:TensorDataType value_type:TypeInfo
table SequenceType elem_type:TypeInfo
enum NodeType int32 Primitive Fused
struct EdgeEnd node_index:uint32 src_arg_index:int32 dst_arg_index:int32
table NodeEdge node_index:uint32 input_edges:[EdgeEnd] output_edges:[EdgeEnd]
table Node name:string doc_string:string domain:string since_version:int32 index:uint32 op_type:string type:NodeType
 execution_provider_type:string inputs:[string] outputs:[string] attributes:[Attribute] input_arg_counts:[int32]
 implicit_inputs:[string]
table ValueInfo name:string doc_string:string type:TypeInfo
union TypeInfoValue tensor_type:TensorTypeAndShape sequence_type:SequenceType map_type:MapType
table TypeInfo denotation:string value:TypeInfoValue
table OperatorSetId domain:string version:int64
table Tensor name:string doc_string:string dims:[int64] data_type:TensorDataType raw_data:[uint8] string_data:[string]
 external_data_offset:int64=-1
table SparseTensor values:Tensor indices:Tensor dims:[int64]
table Attribute name:string doc_string:string type:AttributeType f:float32 i:int64 s:string t:Tensor g:Graph
 floats:[float32] ints:[int64] strings:[string] tensors:[Tensor] graphs:[Graph]
table NodesToOptimizeIndices node_indices:[uint32] num_inputs:uint32 num_outputs:uint32 has_variadic_input:bool
 has_variadic_output:bool num_variadic_inputs:uint32 num_variadic_outputs:uint32
table DeprecatedNodeIndexAndKernelDefHash node_index:uint32 kernel_def_hash:uint64
table RuntimeOptimizationRecord action_id:string nodes_to_optimize_indices:NodesToOptimizeIndices
 produced_nodes:[DeprecatedNodeIndexAndKernelDefHash] produced_op_ids:[string]
table RuntimeOptimizationRecordContainerEntry optimizer_name:string
 runtime_optimization_records:[RuntimeOptimizationRecord]
table RuntimeOptimizations records:[RuntimeOptimizationRecordContainerEntry]
table Graph initializers:[Tensor] node_args:[ValueInfo] nodes:[Node] max_node_index:uint32 node_edges:[NodeEdge]
 inputs:[string] outputs:[string] sparse_initializers:[SparseTensor] runtime_optimizations:RuntimeOptimizations
table StringStringEntry key:string value:string
table Model ir_version:int64 opset_import:[OperatorSetId] producer_name:string producer_version:string domain:string
 model_version:int64 doc_string:string graph:Graph graph_doc_string:string metadata_props:[StringStringEntry]
table DeprecatedKernelCreateInfos node_indices:[uint32] kernel_def_hashes:[uint64]
table DeprecatedSubGraphSessionState graph_id:string session_state:DeprecatedSessionState
table DeprecatedSessionState kernels:DeprecatedKernelCreateInfos
 sub_graph_session_states:[DeprecatedSubGraphSessionState]
enum ArgType int8 INPUT OUTPUT
table ArgTypeAndIndex arg_type:ArgType index:uint32
table KernelTypeStrArgsEntry kernel_type_str:string args:[ArgTypeAndIndex]
table OpIdKernelTypeStrArgsEntry op_id:string kernel_type_str_args:[KernelTypeStrArgsEntry]
table KernelTypeStrResolver op_kernel_type_str_args:[OpIdKernelTypeStrArgsEntry]
table InferenceSession ort_version:string model:Model session_state:DeprecatedSessionState
 kernel_type_str_resolver:KernelTypeStrResolver
"""
