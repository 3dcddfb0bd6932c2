"""What the parsers' classes say, for the registry: written by ``python tests/make_builtin_formats.py``."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

# The arguments of `pparse.document.registry.Builtin`, a format a row.
# fmt: off
ROWS: Final[tuple[tuple[Any, ...], ...]] = (
    ('safetensors', 'pparse.parsers.safetensors.parser:SafetensorsParser', 'pparse.viewers.safetensors.viewer:SafetensorsViewer', ((8, (b'{', b' ', b'\n', b'\t', b'\r', b'\xef\xbb\xbf')), (0, (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',))), ('.safetensors',), False, False, True, False, False),  # noqa: E501
    ('safetensors-index', 'pparse.parsers.safetensors.index:SafetensorsIndexParser', 'pparse.viewers.safetensors.sharded:SafetensorsSetViewer', ((0, (b'{', b' ', b'\t', b'\n', b'\r')),), ('.safetensors.index.json',), False, False, True, False, False),  # noqa: E501
    ('safetensors-folder', 'pparse.parsers.safetensors.index:SafetensorsFolderParser', 'pparse.viewers.safetensors.sharded:SafetensorsSetViewer', (), (), False, True, True, False, False),  # noqa: E501
    ('json', 'pparse.parsers.json.parser:JsonParser', None, ((0, (b'{', b'[', b' ', b'\t', b'\n', b'\r', b'"', b'\xef\xbb\xbf', b'-', b't', b'f', b'n', b'0', b'1', b'2', b'3', b'4', b'5', b'6', b'7', b'8', b'9')),), ('.json',), True, False, True, False, False),  # noqa: E501
    ('json-lines', 'pparse.parsers.json.lines:JsonLinesParser', None, ((0, (b'{', b'[', b' ', b'\t', b'\n', b'\r', b'\xef\xbb\xbf')),), ('.jsonl', '.ndjson', '.jsonlines', '.geojsonl'), False, False, True, False, False),  # noqa: E501
    ('riegeli', 'pparse.parsers.riegeli:RiegeliParser', None, ((0, (b'\x83\xafp\xd1\r\x88J?',)),), ('.riegeli', '.array_record', '.arrayrecord'), True, False, True, False, True),  # noqa: E501
    ('cpb', 'pparse.parsers.cpb.parser:CpbParser', 'pparse.viewers.tensorflow.viewer:TensorflowViewer', ((0, (b'\x83\xafp\xd1\r\x88J?',)),), ('.cpb',), False, False, False, False, False),  # noqa: E501
    ('saved-model', 'pparse.parsers.tensorflow:SavedModelParser', 'pparse.viewers.tensorflow.viewer:TensorflowViewer', ((0, (b'\x08\x01\x12',)),), ('.pb',), False, False, False, False, False, ('saved_model.pb',)),  # noqa: E501
    ('graph-def', 'pparse.parsers.tensorflow:GraphDefParser', 'pparse.viewers.tensorflow.viewer:TensorflowViewer', (), ('.pb',), False, False, False, False, False),  # noqa: E501
    ('meta-graph', 'pparse.parsers.tensorflow:MetaGraphParser', 'pparse.viewers.tensorflow.viewer:TensorflowViewer', (), ('.meta',), False, False, False, False, False),  # noqa: E501
    ('saved-model-folder', 'pparse.parsers.tensorflow:SavedModelFolderParser', 'pparse.viewers.tensorflow.saved_model:SavedModelViewer', (), (), False, True, True, False, False),  # noqa: E501
    ('tensorflow-text', 'pparse.parsers.tensorflow:TensorflowTextParser', None, (), ('.pbtxt', '.pbtxt.txt', '.pb'), False, False, False, False, False, ('.pbtxt', '.pbtxt.txt')),  # noqa: E501
    ('onnx', 'pparse.parsers.onnx.parser:OnnxParser', 'pparse.viewers.onnx.viewer:OnnxViewer', ((0, (b'\x08',)),), ('.onnx',), False, False, False, False, False),  # noqa: E501
    ('onnx-json', 'pparse.parsers.onnx.json_model:OnnxJsonParser', None, ((0, (b'{', b' ', b'\t', b'\n', b'\r', b'\xef\xbb\xbf')),), ('.onnx.json', '.onnxjson', '.json'), False, False, False, False, False),  # noqa: E501
    ('tf-checkpoint', 'pparse.parsers.checkpoint.parser:CheckpointParser', 'pparse.viewers.checkpoint.viewer:viewer_of_version', ((0, (b'\x00\x00',)),), ('.index', '.ckpt'), False, False, False, False, False),  # noqa: E501
    ('tf-checkpoint-data', 'pparse.parsers.checkpoint.parser:CheckpointDataParser', None, (), ('.data-00000-of-00001',), False, False, True, False, False),  # noqa: E501
    ('tf-checkpoint-state', 'pparse.parsers.checkpoint.parser:CheckpointStateParser', None, ((0, (b'model_checkpoint_path:', b'all_model_checkpoint_paths:')),), (), False, False, True, False, False, ('checkpoint',)),  # noqa: E501
    ('tf-checkpoint-folder', 'pparse.parsers.checkpoint.parser:CheckpointFolderParser', None, (), (), False, True, True, False, False),  # noqa: E501
    ('protobuf', 'pparse.parsers.protobuf.parser:ProtobufParser', None, (), ('.pb', '.binpb', '.protobin', '.binaryproto'), True, False, True, False, False),  # noqa: E501
    ('tfrecord', 'pparse.parsers.tfrecord.parser:TfrecordParser', None, (), ('.tfrecord', '.tfrecords'), False, False, True, True, True),  # noqa: E501
    ('gguf', 'pparse.parsers.gguf.parser:GgufParser', 'pparse.viewers.gguf.viewer:gguf_viewer', ((0, (b'GGUF',)),), ('.gguf',), False, False, True, False, False),  # noqa: E501
    ('pickle', 'pparse.parsers.pickle.parser:PickleParser', 'pparse.viewers.pickle.viewer:PickleViewer', ((0, (b'\x80\x00', b'\x80\x01', b'\x80\x02', b'\x80\x03', b'\x80\x04', b'\x80\x05', b'(', b']', b'}', b'l', b'c', b'I', b'N', b'K', b'J', b'V', b'X', b'U', b'T', b'S', b'F', b'G')),), ('.pkl', '.pickle', '.pck', '.p', '.joblib', '.dill'), True, False, True, False, False),  # noqa: E501
    ('pytorch-index', 'pparse.parsers.pytorch.folder:PyTorchIndexParser', 'pparse.viewers.pytorch.sharded:PyTorchSetViewer', ((0, (b'{', b' ', b'\t', b'\n', b'\r')),), ('.bin.index.json',), False, False, True, False, False),  # noqa: E501
    ('pytorch-folder', 'pparse.parsers.pytorch.folder:PyTorchFolderParser', 'pparse.viewers.pytorch.sharded:PyTorchSetViewer', (), (), False, True, True, False, False),  # noqa: E501
    ('pytorch-legacy', 'pparse.parsers.pytorch.legacy:PyTorchLegacyParser', 'pparse.viewers.pytorch.viewer:PyTorchViewer', ((0, (b'\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'\x80\x03\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'\x80\x04\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'\x80\x04\x95\r\x00\x00\x00\x00\x00\x00\x00\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'\x80\x05\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'\x80\x05\x95\r\x00\x00\x00\x00\x00\x00\x00\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19', b'L119547037146038801333356L\n.', b'L119547037146038801333356\n.')),), ('.pt', '.pth', '.ckpt', '.bin'), False, False, False, False, False),  # noqa: E501
    ('pytorch-tar', 'pparse.parsers.pytorch.tar:PyTorchTarParser', 'pparse.viewers.pytorch.viewer:PyTorchViewer', ((257, (b'ustar',)), (0, (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',))), ('.pt', '.pth', '.pth.tar'), False, False, False, False, False),  # noqa: E501
    ('pytorch', 'pparse.parsers.pytorch.zip:PyTorchZipParser', 'pparse.viewers.pytorch.viewer:PyTorchViewer', ((0, (b'PK\x03\x04', b'PK\x05\x06', b'PK\x07\x08', b'PK\x03', b'MZ', b'#!', b'\x7fELF')), (1, (b'K\x03\x04',))), ('.pt', '.pth', '.ckpt', '.bin'), False, False, False, False, False),  # noqa: E501
    ('npy', 'pparse.parsers.numpy.npy:NpyParser', 'pparse.viewers.numpy.viewer:NpyViewer', ((0, (b'\x93NUMPY',)),), ('.npy',), False, False, True, False, False),  # noqa: E501
    ('npz', 'pparse.parsers.numpy.npz:NpzParser', 'pparse.viewers.numpy.archive:NpzViewer', ((0, (b'PK\x03\x04', b'PK\x05\x06', b'PK\x07\x08', b'PK\x03', b'MZ', b'#!', b'\x7fELF')), (1, (b'K\x03\x04',))), ('.npz',), False, False, False, False, False),  # noqa: E501
    ('msgpack', 'pparse.parsers.msgpack.parser:MsgpackParser', 'pparse.viewers.flax.viewer:NumpyMapViewer', ((0, (b'\x81', b'\x82', b'\x83', b'\x84', b'\x85', b'\x86', b'\x87', b'\x88', b'\x89', b'\x8a', b'\x8b', b'\x8c', b'\x8d', b'\x8e', b'\x8f', b'\xde', b'\xdf', b'\x91', b'\x92', b'\x93', b'\x94', b'\x95', b'\x96', b'\x97', b'\x98', b'\x99', b'\x9a', b'\x9b', b'\x9c', b'\x9d', b'\x9e', b'\x9f', b'\xdc', b'\xdd')),), ('.msgpack', '.mpk'), True, False, True, False, False),  # noqa: E501
    ('flax', 'pparse.parsers.msgpack.flax:FlaxParser', 'pparse.viewers.flax.viewer:FlaxViewer', ((0, (b'\x81', b'\x82', b'\x83', b'\x84', b'\x85', b'\x86', b'\x87', b'\x88', b'\x89', b'\x8a', b'\x8b', b'\x8c', b'\x8d', b'\x8e', b'\x8f', b'\xde', b'\xdf', b'\x91', b'\x92', b'\x93', b'\x94', b'\x95', b'\x96', b'\x97', b'\x98', b'\x99', b'\x9a', b'\x9b', b'\x9c', b'\x9d', b'\x9e', b'\x9f', b'\xdc', b'\xdd', b'\xc7', b'\xc8', b'\xc9')),), ('.msgpack',), False, False, False, False, False),  # noqa: E501
    ('zip', 'pparse.parsers.zip.parser:ZipParser', None, ((0, (b'PK\x03\x04', b'PK\x05\x06', b'PK\x07\x08', b'PK\x03', b'MZ', b'#!', b'\x7fELF')), (1, (b'K\x03\x04',))), ('.zip', '.jar', '.whl'), True, False, False, True, False),  # noqa: E501
    ('tar', 'pparse.parsers.tar.parser:TarParser', None, ((257, (b'ustar',)), (0, (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',))), ('.tar',), True, False, True, True, False),  # noqa: E501
    ('model-folder', 'pparse.parsers.model_folder:ModelFolderParser', None, (), (), True, True, True, False, False),
    ('onnx-data', 'pparse.parsers.onnx.parser:OnnxDataParser', 'pparse.viewers.onnx.viewer:OnnxDataViewer', ((0, (b'\x08', b'\n')),), ('.pb',), False, False, False, False, False),  # noqa: E501
    ('pytorch-distcp', 'pparse.parsers.pytorch.distcp:DistcpParser', 'pparse.viewers.pytorch.viewer:DistcpViewer', ((0, (b'PK\x03\x04',)),), ('.distcp',), False, False, False, False, False),  # noqa: E501
    ('tflite', 'pparse.parsers.flatbuffers.formats:TfliteParser', 'pparse.viewers.flatbuffers.tflite:TfliteViewer', ((4, (b'TFL3',)), (8, (b'TFL3',))), ('.tflite', '.lite'), False, False, True, False, False),  # noqa: E501
    ('coreml-package', 'pparse.parsers.coreml:CoremlPackageParser', 'pparse.viewers.coreml.viewer:CoremlViewer', (), (), False, True, True, False, False),  # noqa: E501
    ('coreml-compiled', 'pparse.parsers.mil:CoremlCompiledParser', 'pparse.viewers.coreml.viewer:CoremlViewer', (), (), False, True, True, False, False),  # noqa: E501
    ('coreml', 'pparse.parsers.coreml:CoremlParser', 'pparse.viewers.coreml.viewer:CoremlViewer', ((0, (b'\x08',)),), ('.mlmodel',), False, False, False, False, False),  # noqa: E501
    ('coreml-mil', 'pparse.parsers.mil:MilParser', None, (), ('.mil',), False, False, False, False, False),
    ('paddle', 'pparse.parsers.paddle.parser:PaddleParser', 'pparse.viewers.paddle.viewer:PaddleViewer', ((0, (b'\n',)),), ('.pdmodel', '__model__'), False, False, False, False, False),  # noqa: E501
    ('sentencepiece', 'pparse.parsers.sentencepiece:SentencepieceParser', None, ((0, (b'\n',)),), ('.spm', 'tokenizer.model', 'spiece.model'), False, False, False, False, False),  # noqa: E501
    ('tfevents', 'pparse.parsers.tfevents:TfeventsParser', 'pparse.viewers.tfevents.viewer:TfeventsViewer', ((23, (b'brain.Event:',)),), ('.tfevents',), False, False, True, False, False),  # noqa: E501
    ('flexbuffers', 'pparse.parsers.flatbuffers.flexbuffers:FlexBuffersParser', None, (), ('.flexbuf', '.flex'), False, False, True, False, False),  # noqa: E501
    ('catboost', 'pparse.parsers.flatbuffers.formats:CatboostParser', 'pparse.viewers.flatbuffers.vectors:CatboostViewer', ((0, (b'CBM1',)),), ('.cbm',), False, False, True, False, False),  # noqa: E501
    ('executorch-data', 'pparse.parsers.flatbuffers.formats:ExecutorchDataParser', 'pparse.viewers.flatbuffers.executorch:ExecutorchDataViewer', ((4, (b'FT01',)), (8, (b'FT01', b'FH01'))), ('.ptd',), False, False, True, False, False),  # noqa: E501
    ('executorch', 'pparse.parsers.flatbuffers.formats:ExecutorchParser', 'pparse.viewers.flatbuffers.executorch:ExecutorchViewer', ((4, (b'ET12',)), (8, (b'ET12', b'eh00'))), ('.pte',), False, False, True, False, False),  # noqa: E501
    ('mnn', 'pparse.parsers.flatbuffers.formats:MnnParser', 'pparse.viewers.flatbuffers.vectors:MnnViewer', (), ('.mnn',), False, False, False, True, False),  # noqa: E501
    ('ort', 'pparse.parsers.flatbuffers.formats:OrtParser', 'pparse.viewers.flatbuffers.ort:OrtViewer', ((4, (b'ORTM',)), (8, (b'ORTM',))), ('.ort',), False, False, True, False, False),  # noqa: E501
    ('flatbuffers', 'pparse.parsers.flatbuffers.schemaless:SchemalessParser', None, ((4, (b'BFBS',)),), ('.fb', '.flatbuf', '.bfbs'), True, False, True, True, False),  # noqa: E501
    ('coreml-weights', 'pparse.parsers.milblob:MilBlobParser', 'pparse.viewers.coreml.weights:WeightsViewer', ((64, (b'\xef\xbe\xad\xde',)),), ('.bin',), False, False, False, False, False),  # noqa: E501
    ('paddle-params', 'pparse.parsers.paddle.params:PaddleParamsParser', 'pparse.viewers.paddle.viewer:PaddleParamsViewer', ((0, (b'\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00',)),), ('.pdiparams', '__params__'), False, False, True, False, False),  # noqa: E501
    ('paddle-json', 'pparse.parsers.paddle.json_program:PaddleJsonParser', 'pparse.viewers.paddle.viewer:PaddleJsonViewer', ((0, (b'{', b' ', b'\t', b'\n', b'\r', b'\xef\xbb\xbf')),), (), False, False, True, False, False, ('.json',)),  # noqa: E501
    ('pytorch-dcp-folder', 'pparse.parsers.pytorch.dcp:DcpFolderParser', None, (), (), False, True, True, False, False),
    ('pytorch-dcp', 'pparse.parsers.pytorch.dcp:DcpParser', 'pparse.viewers.pytorch.dcp:DcpViewer', ((0, (b'\x80\x02', b'\x80\x03', b'\x80\x04', b'\x80\x05')),), ('.metadata',), False, False, False, False, False),  # noqa: E501
    ('pt2', 'pparse.parsers.pytorch.exported:ExportedProgramParser', 'pparse.viewers.pytorch.exported:ExportedProgramViewer', ((0, (b'PK\x03\x04', b'PK\x05\x06', b'PK\x07\x08', b'PK\x03', b'MZ', b'#!', b'\x7fELF')), (1, (b'K\x03\x04',))), ('.pt2',), False, False, False, False, False),  # noqa: E501
    ('zero-folder', 'pparse.parsers.pytorch.zero:ZeroFolderParser', None, (), (), False, True, True, False, False),
    ('deepspeed-zero', 'pparse.parsers.pytorch.zero:ZeroParser', 'pparse.viewers.pytorch.zero:ZeroViewer', ((0, (b'PK\x03\x04', b'PK\x05\x06', b'PK\x07\x08', b'PK\x03', b'MZ', b'#!', b'\x7fELF')), (1, (b'K\x03\x04',))), ('_model_states.pt',), False, False, False, False, False),  # noqa: E501
    ('gzip', 'pparse.parsers.streams:GzipParser', None, ((0, (b'\x1f\x8b', b'\x1f')), (1, (b'\x8b\x08',))), ('.gz', '.tgz', '.bgz'), True, False, True, False, False),  # noqa: E501
    ('bz2', 'pparse.parsers.streams:Bz2Parser', None, ((0, (b'BZh',)),), ('.bz2', '.tbz2', '.tbz'), True, False, True, False, False),  # noqa: E501
    ('xz', 'pparse.parsers.streams:XzParser', None, ((0, (b'\xfd7zXZ',)),), ('.xz', '.txz'), True, False, True, False, False),  # noqa: E501
    ('lzma', 'pparse.parsers.streams:LzmaParser', None, ((0, (b']\x00\x00',)),), ('.lzma', '.tlz'), True, False, True, False, False),  # noqa: E501
    ('zstd', 'pparse.parsers.streams:ZstdParser', None, ((0, (b'(\xb5/\xfd', b'P*M\x18', b'Q*M\x18', b'R*M\x18', b'S*M\x18', b'T*M\x18', b'U*M\x18', b'V*M\x18', b'W*M\x18', b'X*M\x18', b'Y*M\x18', b'Z*M\x18', b'[*M\x18', b'\\*M\x18', b']*M\x18', b'^*M\x18', b'_*M\x18')),), ('.zst', '.tzst', '.zstd'), True, False, True, False, False),  # noqa: E501
    ('lz4', 'pparse.parsers.streams:Lz4Parser', None, ((0, (b'\x04"M\x18', b'\x02!L\x18')),), ('.lz4', '.tlz4'), True, False, True, False, False),  # noqa: E501
    ('zlib', 'pparse.parsers.streams:ZlibParser', None, ((0, (b'x\x01', b'x^', b'x\x9c', b'x\xda')),), ('.zz', '.zlib'), True, False, True, False, False),  # noqa: E501
    ('deflate', 'pparse.parsers.streams:DeflateParser', None, (), ('.deflate',), True, False, True, False, False),
    ('brotli', 'pparse.parsers.streams:BrotliParser', None, (), ('.br',), True, False, True, False, False),
)
