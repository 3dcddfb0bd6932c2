"""The schema of CatBoost models (catboost/libs/model/flatbuffers/*.fbs, Apache 2.0)."""

from __future__ import annotations

SCHEMA = """
root TModelCore
struct TGuid dw0:uint32 dw1:uint32 dw2:uint32 dw3:uint32
enum ENanValueTreatment int8 AsIs AsFalse AsTrue
table TFloatFeature HasNans:bool Index:int32=-1 FlatIndex:int32=-1 Borders:[float32] FeatureId:string
 NanValueTreatment:ENanValueTreatment
table TCatFeature Index:int32=-1 FlatIndex:int32=-1 FeatureId:string UsedInModel:bool=true
table TTextFeature Index:int32=-1 FlatIndex:int32=-1 FeatureId:string UsedInModel:bool=true
table TEmbeddingFeature Index:int32=-1 FlatIndex:int32=-1 FeatureId:string Dimension:int32 UsedInModel:bool=true
table TEstimatedFeature SourceFeatureIndex:int32=-1 CalcerId:TGuid LocalIndex:int32=-1 Borders:[float32]
table TOneHotFeature Index:int32=-1 Values:[int32] StringValues:[string]
struct TFloatSplit Index:int32 Border:float32
struct TOneHotSplit Index:int32 Value:int32
table TFeatureCombination CatFeatures:[int32] FloatSplits:[TFloatSplit] OneHotSplits:[TOneHotSplit]
enum ECtrType int8 Borders Buckets BinarizedTargetMeanValue FloatTargetMeanValue Counter FeatureFreq
table TModelCtrBase FeatureCombination:TFeatureCombination CtrType:ECtrType
table TModelCtr Base:TModelCtrBase TargetBorderIdx:int32 PriorNum:float32 PriorDenom:float32=1.0 Shift:float32
 Scale:float32=1.0
table TCtrFeature Ctr:TModelCtr Borders:[float32]
struct TNonSymmetricTreeStepNode LeftSubtreeDiff:uint16 RightSubtreeDiff:uint16
table TKeyValue Key:string Value:string
table TObliviousTrees ApproxDimension:int32 TreeSplits:[int32] TreeSizes:[int32] TreeStartOffsets:[int32]
 CatFeatures:[TCatFeature] FloatFeatures:[TFloatFeature] OneHotFeatures:[TOneHotFeature] CtrFeatures:[TCtrFeature]
 LeafValues:[float64] LeafWeights:[float64] NonSymmetricStepNodes:[TNonSymmetricTreeStepNode]
 NonSymmetricNodeIdToLeafId:[uint32] TextFeatures:[TTextFeature] EstimatedFeatures:[TEstimatedFeature]
table TModelCore FormatVersion:string ObliviousTrees:TObliviousTrees InfoMap:[TKeyValue] ModelPartIds:[string]
"""
