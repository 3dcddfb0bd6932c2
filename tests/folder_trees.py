"""Folders as people have them: a zoo of models, a repository, a pipeline, a served model; of the samples."""

from __future__ import annotations

import shutil
from pathlib import Path

SAMPLES = Path("docs/samples").resolve()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 4021\n"
GPT = SAMPLES / "tiny-gpt.safetensors"
CONFIG = '{"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "torch_dtype": "float16"}'
PIPELINE = '{"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.30.0"}'

TREES: dict[str, dict[str, str | bytes | Path]] = {
    "zoo": {
        "a.safetensors": GPT,
        "b.pt": SAMPLES / "tiny-gpt.cut.pt",
        "c.gguf": SAMPLES / "tiny.gguf",
        "d.onnx": SAMPLES / "tiny.onnx",
        "e.tar.gz": SAMPLES / "backup.tar.gz",
        "f.jsonl": '{"a": 1}\n{"a": 2}\n',
        "g.h5": b"\x89HDF\r\n\x1a\n" + bytes(100),
        "h.safetensors": POINTER,
        "words.npz": "words, not a model",
        "many/one.gguf": SAMPLES / "tiny.gguf",
        "many/two.gguf": SAMPLES / "tiny.gguf",
        "notes/a.txt": "text",
        "saved": SAMPLES / "saved-model",
        "sharded": SAMPLES / "sharded",
        "steps": SAMPLES / "training",
        "README.md": "# zoo",
    },
    "pickles": {
        "cart.pkl": b"\x80\x04\x8c\x04shop\x8c\x04Cart\x93)\x81}\x8c\x05totalK\x03sb.",
        "day.pkl": b"\x80\x04\x8c\x08datetime\x8c\x04date\x93C\x04\x07\xe8\x01\x02\x85R.",
        "hello.pkl": b"cos\nsystem\n(S'echo hello'\ntR.",
        "hidden.bin": b"cbuiltins\ngetattr\n(cbuiltins\n__import__\n(S'os'\ntRS'system'\ntR(S'echo hello'\ntR.",
        "weights.npz": SAMPLES / "run.npz",
        "notes.txt": "no pickle",
    },
    "hf": {
        "model.safetensors": GPT,
        "pytorch_model.bin": SAMPLES / "tiny-gpt.pt",
        "onnx/model.onnx": SAMPLES / "tiny.onnx",
        "config.json": CONFIG,
        "tokenizer.json": "{}",
    },
    "pipeline": {
        "model_index.json": PIPELINE,
        "unet/diffusion_pytorch_model.safetensors": GPT,
        "unet/config.json": "{}",
        "tokenizer/vocab.json": "{}",
        "vae/diffusion_pytorch_model.safetensors": GPT,
    },
    "served": {"1": SAMPLES / "saved-model", "2": SAMPLES / "saved-model"},
}


def fill(folder: Path, files: dict[str, str | bytes | Path]) -> Path:
    """Write files at paths in a folder, and return it; what stands for a path is copied."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            (shutil.copytree if content.is_dir() else shutil.copy)(content, path)
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder
