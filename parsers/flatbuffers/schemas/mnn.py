"""The schema of MNN models (alibaba/MNN schema/default/*.fbs, Apache 2.0)."""

from __future__ import annotations

SCHEMA = """
enum NetSource int8 CAFFE TENSORFLOW TFLITE ONNX TORCH
enum DataType int32 DT_INVALID DT_FLOAT DT_DOUBLE DT_INT32 DT_UINT8 DT_INT16 DT_INT8 DT_STRING DT_COMPLEX64 DT_INT64
 DT_BOOL DT_QINT8 DT_QUINT8 DT_QINT32 DT_BFLOAT16 DT_QINT16 DT_QUINT16 DT_UINT16 DT_COMPLEX128 DT_HALF DT_RESOURCE
 DT_VARIANT
enum MNN_DATA_FORMAT int8 NCHW NHWC NC4HW4 NHWC4 UNKNOWN
table Blob dims:[int32] dataFormat:MNN_DATA_FORMAT dataType:DataType=DT_FLOAT uint8s:[uint8] int8s:[int8]
 int32s:[int32] int64s:[int64] float32s:[float32] strings:[string] external:[int64]
table ListValue s:[string] i:[int32] f:[float32] b:[bool] type:[DataType]
table Attribute s:string i:int32 b:bool key:string type:DataType f:float32 tensor:Blob list:ListValue
 func:NamedAttrList
table NamedAttrList name:string attr:[Attribute]
enum FusedActivation int8 kTfLiteActNone kTfLiteActRelu kTfLiteActRelu1 kTfLiteActRelu6 kTfLiteActTanh
 kTfLiteActSignBit kTfLiteActSigmoid
table QuantizedParam zeroPoint:int32 scale:float32
table QuantizedAdd activationType:FusedActivation input1QuantizedParam:QuantizedParam
 input2QuantizedParam:QuantizedParam outputQuantizedParam:QuantizedParam
enum ModeFormat int8 TENSORFLOW TFLITE
enum QuantizeMode int8 MIN_COMBINED MIN_FIRST SCALED
table Dequantize inputQuantizedParam:QuantizedParam mode:QuantizeMode modelFormat:ModeFormat=TENSORFLOW type:DataType
table QuantizedAvgPool kernelX:int32 kernelY:int32 modelFormat:ModeFormat=TENSORFLOW outputActivationMax:int32
 outputActivationMin:int32 padType:PoolPadType padX:int32 padY:int32 strideX:int32 strideY:int32 type:DataType
table QuantizedBiasAdd bias:[int32] inputType:DataType max:int32 min:int32 outputType:DataType
table QuantizedConcat activationType:FusedActivation axis:int32 inputScale:[float32] inputZeroPoint:[int32]
 outputQuantizedParam:QuantizedParam
table QuantizedLogistic inputQuantizedParam:QuantizedParam outputQuantizedParam:QuantizedParam
table QuantizedMatMul transposeA:bool transposeB:bool
table QuantizedMaxPool kernelX:int32 kernelY:int32 modelFormat:ModeFormat=TENSORFLOW outputActivationMax:int32
 outputActivationMin:int32 padType:PoolPadType padX:int32 padY:int32 strideX:int32 strideY:int32 type:DataType
table QuantizedRelu type:DataType
table QuantizedRelu6 type:DataType
table QuantizedReshape dims:[int32] modelFormat:ModeFormat=TENSORFLOW
table QuantizedSoftmax beta:float32 inputScale:float32
enum QuantizeRoundMode int8 HALF_AWAY_FROM_ZERO HALF_TO_EVEN
table QuantizeV2 type:DataType mode:QuantizeMode roundMode:QuantizeRoundMode
table RequantizationRange
table Requantize
table TfQuantizedConv2D bias:[int32] biasflag:bool common:Convolution2DCommon weight:[uint8]
 activationType:FusedActivation multiplier:int32 outMax:int32 outMin:int32 shift:int32
 biasQuantizedParam:QuantizedParam depthMultiplier:int32 filterQuantizedParam:QuantizedParam
 inputQuantizedParam:QuantizedParam modelFormat:ModeFormat=TENSORFLOW outputQuantizedParam:QuantizedParam
enum BinaryOpOperation int32 ADD SUB MUL DIV MAX_TEMP MIN_TEMP POW REALDIV MINIMUM MAXIMUM GREATER GREATER_EQUAL LESS
 FLOORDIV SquaredDifference EQUAL LESS_EQUAL FLOORMOD MOD=19 ATAN2 LOGICALOR NOTEQUAL BITWISE_AND BITWISE_OR
 BITWISE_XOR LOGICALXOR LEFTSHIFT RIGHTSHIFT MUL_SILU
table BinaryOp opType:BinaryOpOperation T:DataType=DT_FLOAT activationType:int32
table PackParam dataType:DataType axis:int32
table StridedSliceParam Index:DataType T:DataType beginMask:int32 endMask:int32 ellipsisMask:int32 newAxisMask:int32
 shrinkAxisMask:int32 fromType:int32
table SqueezeParam squeezeDims:[int32]
table CastParam srcT:DataType dstT:DataType
enum ReductionType int8 SUM ASUM SUMSQ MEAN MAXIMUM MINIMUM PROD ANY ALL
table ReductionParam operation:ReductionType dim:[int32] coeff:float32 keepDims:bool dType:DataType=DT_FLOAT
table Gather Tindices:DataType Tparams:DataType validateIndices:bool axis:int32
table ExpandDims T:DataType Tdim:DataType axis:int32
table Selu scale:float32 alpha:float32
table AsString T:DataType precision:int32 scientific:bool shortest:bool width:int32 fillString:string
table ReduceJoin keepDims:bool separator:string
enum UnaryOpOperation int32 ABS NEG FLOOR CEIL SQUARE SQRT RSQRT EXP LOG SIN COS TAN ASIN ACOS ATAN RECIPROCAL LOG1P
 BNLL ACOSH SINH ASINH ATANH SIGN ROUND COSH ERF ERFC ERFINV EXPM1 SIGMOID TANH HARDSWISH GELU GELU_STANDARD SILU
table UnaryOp opType:UnaryOpOperation T:DataType tableInt8:[int8]
table TopKV2 T:DataType=DT_FLOAT sorted:bool largest:bool=true
enum CropAndResizeMethod int8 BILINEAR NEAREST
table CropAndResize extrapolationValue:float32 method:CropAndResizeMethod
table Fill
table GatherV2 Taxis:DataType Tindices:DataType Tparams:DataType
table NonMaxSuppressionV2
table Range Tidx:DataType
table Rank
table Size outputDataType:DataType
table Transpose Tperm:DataType
table SliceTf T:DataType
table QuantizeMaxMin T:DataType
table Crop axis:int32=2 offset:[int32]
table SpaceBatch blockShape:Blob padding:Blob
table MatMul T:DataType transposeA:bool transposeB:bool weight:[float32] bias:[float32]
table MomentsParam dim:[int32] keepDims:bool=true dType:DataType=DT_FLOAT
table RNNParam numUnits:int32 isBidirectionalRNN:bool linearBeforeReset:bool keepAllOutputs:bool fwGateWeight:Blob
 fwGateBias:Blob fwCandidateWeight:Blob fwCandidateBias:Blob fwRecurrentBias:Blob bwGateWeight:Blob bwGateBias:Blob
 bwCandidateWeight:Blob bwCandidateBias:Blob bwRecurrentBias:Blob
table BatchMatMulParam adjX:bool adjY:bool
enum DepthToSpaceMode int8 DCR CRD
table DepthSpaceParam blockSize:int32 mode:DepthToSpaceMode=DCR
table ReverseSequenceParam batchDim:int32 seqDim:int32
table DetectionPostProcessParam maxDetections:int32 maxClassesPerDetection:int32 detectionsPerClass:int32
 nmsScoreThreshold:float32 iouThreshold:float32 numClasses:int32 useRegularNMS:bool centerSizeEncoding:[float32]
table OneHotParam dType:DataType=DT_FLOAT axis:int32=-1
enum PadValueMode int8 CONSTANT REFLECT SYMMETRIC EDGE
table PadParam mode:PadValueMode=CONSTANT
table LayerNorm axis:[int32] epsilon:float32 gamma:[float32] beta:[float32] group:int32=1 external:[int64]
 useRMSNorm:bool
table GroupNorm axis:int32 epsilon:float32 gamma:[float32] beta:[float32] group:int32=1 bSwish:int32 external:[int64]
table RandomUniform seed:int32 seed2:int32 type:DataType=DT_FLOAT low:float32 high:float32=1.0
table TensorArray dynamic_size:bool identical_element_shapes:bool element_shape:[int32] T:DataType=DT_FLOAT axis:int32
 keepdims:bool=true new_axis:bool
table LSTMBlockCell cell_clip:float32=3.0 forget_bias:float32=1.0 use_peephole:bool
enum PadMode int8 CAFFE VALID SAME
table Convolution2DCommon padX:int32 padY:int32 kernelX:int32=1 kernelY:int32=1 strideX:int32=1 strideY:int32=1
 dilateX:int32=1 dilateY:int32=1 padMode:PadMode=CAFFE group:int32=1 outputCount:int32 inputCount:int32 relu:bool
 relu6:bool pads:[int32] outPads:[int32] hasOutputShape:bool
table Convolution3DCommon dilates:[int32] strides:[int32] kernels:[int32] pads:[int32] padMode:PadMode=CAFFE
 inputCount:int32 outputCount:int32 relu:bool relu6:bool group:int32=1 outPads:[int32] hasOutputShape:bool
enum SparseAlgo int8 RANDOM SIMD_OC
table SparseCommon method:SparseAlgo=RANDOM args:[Attribute]
enum ScaleStorageType int8 FP32 FP16
table IDSTQuan buffer:[int8] alpha:[float32] type:int32 useInt32:bool quantScale:float32 scaleIn:float32
 scaleOut:float32 aMaxOrBits:int32 aMin:int32 readType:int32 has_scaleInt:bool shapeInt32:bool weightSize:uint32
 index:[uint32] alphaFp16:[uint16] scaleStorage:ScaleStorageType=FP32
enum QuantizeAlgo int8 DEFAULT OVERFLOW_AWARE WINOGRAD_AWARE
table QuantizedFloatParam weight:[int8] bias:[int32] scale:[float32] tensorScale:[float32] method:QuantizeAlgo=DEFAULT
 nbits:int32=8 zeroPoint:int8 outputZeroPoint:int8 clampMin:int8=-128 clampMax:int8=127 winogradAttr:[int32]
 outputDataType:DataType=DT_INT8 floatzeros:[float32]
table Convolution2D common:Convolution2DCommon weight:[float32] bias:[float32] quanParameter:IDSTQuan
 symmetricQuan:QuantizedFloatParam sparseParameter:SparseCommon external:[int64]
table Convolution3D common:Convolution3DCommon weight:[float32] bias:[float32] external:[int64]
table InnerProduct outputCount:int32 biasTerm:int32 weightSize:int32 weight:[float32] bias:[float32] axis:int32
 transpose:bool quanParameter:IDSTQuan
enum PoolType int8 MAXPOOL AVEPOOL
enum PoolPadType int8 CAFFE VALID SAME
enum AvgPoolCountType int8 DEFAULT INCLUDE_PADDING EXCLUDE_PADDING
table Pool padX:int32 padY:int32 isGlobal:bool kernelX:int32 kernelY:int32 strideX:int32 strideY:int32 type:PoolType
 padType:PoolPadType dataType:DataType=DT_FLOAT ceilModel:bool=true pads:[int32] countType:AvgPoolCountType
table Pool3D strides:[int32] kernels:[int32] pads:[int32] type:PoolType padType:PoolPadType isGlobal:bool
table Relu slope:float32
table Relu6 minValue:float32 maxValue:float32=6.0
table PRelu slopeCount:int32 slope:[float32]
table ELU alpha:float32
table LRN regionType:int32 localSize:int32 alpha:float32 beta:float32 bias:float32=1.0
table ArgMax outMaxVal:int32 topK:int32 axis:int32 softmaxThreshold:int32
table Axis axis:int32
table Input dims:[int32] dtype:DataType=DT_FLOAT dformat:MNN_DATA_FORMAT=NC4HW4
table LSTM outputCount:int32 weightSize:int32 clippingThreshold:float32 weightI:Blob weightH:Blob bias:Blob
 weightIQ:Blob weightIA:Blob quantScale:float32
table Slice axis:int32 slicePoints:[int32] sourceType:NetSource=CAFFE
table BatchNorm channels:int32 slopeData:[float32] meanData:[float32] varData:[float32] biasData:[float32]
 Adata:[float32] Bdata:[float32] epsilon:float32=0.001
table Scale channels:int32 scaleData:[float32] biasData:[float32] external:[int64]
enum EltwiseType int8 PROD SUM MAXIMUM SUB
table Eltwise type:EltwiseType coeff:[float32]
table Flatten axis:int32 endAxis:int32
table Permute dims:[int32]
table Reshape dims:[int32] dimType:MNN_DATA_FORMAT
table DetectionOutput classCount:int32 nmsThresholdold:float32 nmsTopK:int32 keepTopK:int32
 confidenceThreshold:float32 shareLocation:int32 backgroundLable:int32 varianceEncodedTarget:int32 codeType:int32
 objectnessScore:float32=0.01
table RoiParameters pooledWidth:int32 pooledHeight:int32 spatialScale:float32 samplingRatio:int32=-1 aligned:bool
 poolType:PoolType=AVEPOOL outputGrad:bool
table Proposal featStride:int32 baseSize:int32 preNmsTopN:int32 afterNmsTopN:int32 nmsThreshold:float32 minSize:int32
 ratios:Blob scales:Blob anchors:Blob
enum CoordinateTransformationMode int8 NotSet AlignCorners HalfPixels PytorchHalfPixels Asymmetric
 TensorflowHalfPixels TensorflowCropAndResize
table Interp widthScale:float32 heightScale:float32 outputWidth:int32 outputHeight:int32 resizeType:int32
 alignCorners:bool halfPixelCenters:bool widthOffset:float32 heightOffset:float32 cubicCoeffA:float32=-0.75
 ctm:CoordinateTransformationMode=NotSet depthScale:float32 outputDepth:int32 depthOffset:float32
table Resize xScale:float32 yScale:float32
table PriorBox minSizes:[float32] maxSizes:[float32] aspectRatios:[float32] variances:[float32] flip:bool clip:bool
 imageWidth:int32 imageHeight:int32 stepWidth:int32 stepHeight:int32 offset:float32
table Normalize acrossSpatial:int32 channelShared:int32 eps:float32 scale:[float32]
table EltwiseInt8 type:EltwiseType inputQuan0:QuantizedFloatParam inputQuan1:QuantizedFloatParam
 outputQuan:QuantizedFloatParam
table CumSum exclusive:bool reverse:bool
table ExtraInfo buffer:[int8] name:string version:string
table TensorConvertInfo source:MNN_DATA_FORMAT dest:MNN_DATA_FORMAT
enum SampleMode int8 BILINEAR NEAREST
enum BorderMode int8 ZEROS CLAMP REFLECTION CUBE
table GridSample mode:SampleMode paddingMode:BorderMode alignCorners:bool backward:bool
enum ImageFormatType int32 RGBA RGB BGR GRAY BGRA YCrCb YUV HSV XYZ BGR555 BGR565 YUV_NV21 YUV_NV12 YUV_I420 HSV_FULL
enum FilterType int8 NEAREST BILINEAR BICUBIC
enum WrapType int8 CLAMP_TO_EDGE ZERO REPEAT
table ImageProcessParam filterType:FilterType=NEAREST sourceFormat:ImageFormatType=RGBA
 destFormat:ImageFormatType=RGBA wrap:WrapType=CLAMP_TO_EDGE mean:[float32] normal:[float32] transform:[float32]
 paddingValue:int8 shape:[int32] outputType:DataType draw:bool
root Net
enum OpType int32 AbsVal QuantizedAdd ArgMax AsString InstanceNorm BatchToSpaceND Copy BinaryOp Bnll Cast Concat Const
 Convolution ConvolutionDepthwise Crop CropAndResize ImageProcess Deconvolution DeconvolutionDepthwise Dequantize
 DetectionOutput Dropout Eltwise ELU Unique Exp ExpandDims Fill Flatten Im2Col Gather GatherV2 Im2Seq InnerProduct
 Input Interp Log LRN LSTM MatMul MoE NonMaxSuppression NonMaxSuppressionV2 Normalize Pack Padding Permute Pooling
 Power PReLU PriorBox Proposal QuantizedAvgPool QuantizedBiasAdd QuantizedConcat QuantizedDepthwiseConv2D
 QuantizedLogistic RasterAndInterpolate QuantizedMaxPool Texture RasterDiff QuantizedReshape QuantizedSoftmax
 QuantizeMaxMin QuantizeV2 Range Rank ReduceJoin Reduction ReLU ReLU6 RequantizationRange Requantize Reshape Resize
 RNN ROIPooling Scale Selu Seq2Out Shape Sigmoid Size Slice SliceTf Softmax SpaceToBatchND SpatialProduct Col2Im
 Segment Squeeze StridedSlice CastLike StringSplit StringToNumber TanH TfQuantizedConv2D Threshold Tile TopKV2
 Transpose UnaryOp Unpack Where Moments RNNSequenceGRU BatchMatMul Unsqueeze CosineSimilarity DepthToSpace
 SpaceToDepth ReverseSequence Pooling3D Convolution3D MatrixBandPart GatherND DetectionPostProcess UnravelIndex
 ScatterNd OneHot BroadcastTo Dilation2D Interp3D Raster=128 ConvertTensor ArgMin LinSpace RandomUniform TensorArray
 TensorArraySize TensorArrayRead TensorArrayWrite TensorArrayGather TensorArrayScatter TensorArraySplit
 TensorArrayConcat LSTMBlockCell Reverse ROIAlign RandomNormal TensorArrayInsert TensorArrayErase EyeLike CumSum Det
 CumProd ScatterElements GatherElements Svd Histogram DynamicQuant Stft Plugin=256 Select ZerosLike Broastcast
 SetDiff1D ReluGrad Identity PoolGrad SoftmaxGrad Conv2DBackPropFilter TrainableParam BatchNorm ConvTranspose3D
 ZeroGrad Attention=299 FmhaV2 Fmhca SeqLen2Spatial SplitGeLU GroupNorm LinearAttention RoPE FusedLinear GatedRMSNorm
 Extra=512 ConvInt8 Int8ToFloat DepthwiseConvInt8 FloatToInt8=517 EltwiseInt8 While=600 If LayerNorm=603 GridSample
table Plugin type:string attr:[Attribute]
table Extra type:string engine:string info:[int8] attr:[Attribute] vector:bool
table StringVec data:[string]
table AttentionParam kv_cache:bool=true kv_shared_layer:string layer_index:int32=-1 kv_shared_layer_index:int32=-1
 mhq_quant:[TensorQuantInfo] output_c4:bool attnScale:float32
table LinearAttentionParam attn_type:string num_k_heads:int32 num_v_heads:int32 head_k_dim:int32 head_v_dim:int32
 use_qk_l2norm:bool gate_fold:bool gate_coef:[float32] gate_bias:[float32]
table RoPEParam rope_cut_head_dim:int32 num_head:int32 kv_num_head:int32 head_dim:int32 q_norm:LayerNorm
 k_norm:LayerNorm
table FusedLinearParam convs:[Convolution2D] act_silu_mul:bool has_ln:bool ln:LayerNorm ln_fold:bool
table FmhaV2Param heads:int32
table FmhcaParam heads:int32
table StftParam n_fft:int32 hop_length:int32 abs:bool=true
table ShapeParam hasStart:bool start:int32 hasEnd:bool end:int32
table WhileParam cond_graph:string body_graph:string aliases_inputs:[StringVec] aliases_outputs:[string]
 aliases_updates:[StringVec]
table IfParam then_graph:string else_graph:string aliases_inputs:[StringVec] aliases_outputs:[StringVec]
table RegionCommand op:Op steps:[int32] size:[int32] indexes:[int32] view:[View] fuse:int32=-1 iterIndexes:[int32]
table LoopParam tensorNumber:int32 outputIndexes:[int32] inputIndexes:[int32] extraTensorInfos:[TensorDescribe]
 parallel:bool=true loopNumber:int32 commands:[RegionCommand] initCommand:[RegionCommand]
union OpParameter QuantizedAdd ArgMax AsString Axis BatchNorm BinaryOp Blob CastParam Convolution2D Crop CropAndResize
 Dequantize DetectionOutput Eltwise ExpandDims Fill Flatten Gather GatherV2 InnerProduct Input Interp LRN LSTM MatMul
 NonMaxSuppressionV2 Normalize PackParam Permute Plugin Pool PRelu PriorBox Proposal QuantizedAvgPool QuantizedBiasAdd
 QuantizedConcat QuantizedLogistic QuantizedMatMul QuantizedMaxPool QuantizedRelu QuantizedRelu6 QuantizedReshape
 QuantizedSoftmax QuantizeMaxMin QuantizeV2 Range Rank ReduceJoin ReductionParam Relu Relu6 RequantizationRange
 Requantize Reshape Resize RoiParameters Scale Selu Size Slice SliceTf SpaceBatch SqueezeParam StridedSliceParam
 TensorConvertInfo TfQuantizedConv2D TopKV2 Transpose UnaryOp MomentsParam RNNParam BatchMatMulParam
 QuantizedFloatParam DepthSpaceParam EltwiseInt8 ReverseSequenceParam Extra Pool3D Convolution3D ELU
 DetectionPostProcessParam OneHotParam PadParam WhileParam IfParam RandomUniform LayerNorm TensorArray LSTMBlockCell
 GridSample LoopParam ImageProcessParam CumSum GroupNorm FmhaV2Param FmhcaParam AttentionParam StftParam
 LinearAttentionParam ShapeParam RoPEParam FusedLinearParam
table Op inputIndexes:[int32] main:OpParameter name:string outputIndexes:[int32] type:OpType
 defaultDimentionFormat:MNN_DATA_FORMAT=NHWC externalPath:string
table View offset:int32 stride:[int32]
table Region src:View dst:View size:[int32] origin:int32
table TensorDescribe blob:Blob index:int32 name:string regions:[Region] quantInfo:TensorQuantInfo
enum ForwardType int8 CPU METAL CUDA OPENCL AUTO NNAPI OPENGLES VULKAN
enum Usage int8 INFERENCE TRAIN INFERENCE_STATIC
table SubGraphProto name:string inputs:[int32] outputs:[int32] tensors:[string] nodes:[Op]
 extraTensorDescribe:[TensorDescribe]
table TensorQuantInfo scale:float32 zero:float32 min:float32=-128 max:float32=127 type:DataType
table Net bizCode:string extraTensorDescribe:[TensorDescribe] extraInfo:ExtraInfo oplists:[Op] outputName:[string]
 preferForwardType:ForwardType=CPU sourceType:NetSource=CAFFE tensorName:[string] tensorNumber:int32
 usage:Usage=INFERENCE subgraphs:[SubGraphProto] mnn_uuid:string
"""
